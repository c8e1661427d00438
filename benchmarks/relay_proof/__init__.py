"""Parts of ``python -m benchmarks.relay``."""
