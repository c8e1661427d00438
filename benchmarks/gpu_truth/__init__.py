"""The runner report against the kernels that the device really ran (docs/runners.md)."""
