"""``python -m dynamo.sglang``. Spawned children re-import this file: nothing else lives here."""

from sglang_worker.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
