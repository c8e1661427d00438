"""``python -m sglang_worker.demo``."""

from sglang_worker.demo.run import main

if __name__ == "__main__":
    raise SystemExit(main())
