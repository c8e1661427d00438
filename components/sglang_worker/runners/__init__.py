"""What every SGLang runner resolved (its stamp), what it really runs (its kernels), and whether
the two agree; collected in the scheduler processes, checked before the worker registers.

`process` is given to SGLang as the schedulers' entry, `startup` is what the worker's main calls,
`report` is the shape that every surface shows. docs/runners.md explains how to read it.
"""
