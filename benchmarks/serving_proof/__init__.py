"""Parts of ``python -m benchmarks.serving``."""
