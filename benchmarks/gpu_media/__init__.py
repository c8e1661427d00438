"""Parts of `benchmarks.gpu_diffusion`."""
