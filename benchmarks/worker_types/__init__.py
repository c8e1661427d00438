"""Parts of `benchmarks.gpu_types`."""
