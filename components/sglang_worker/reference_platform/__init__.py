"""SGLang out-of-tree platform that runs the real engine in pure PyTorch on a plain CPU.

`activation` decides (SGLang's entry point), `platform` is the class SGLang asks for capabilities,
`hooks` puts our kernels where SGLang would launch Triton or CUDA ones, `kernels` holds what the
linear-attention dispatchers see, `defaults` and `refusals` are what the worker's configuration
asks. docs/reference-platform.md describes limits and measurements.
"""
