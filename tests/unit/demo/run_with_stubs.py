"""Runs the demo with stubs for its two processes: ``run_with_stubs.py FRONTEND WORKER args…``."""

from __future__ import annotations

import sys
from pathlib import Path

from sglang_worker.demo import deployment, run

STUB = str(Path(__file__).with_name("stub_deployment.py"))


def main() -> int:
    frontend_mode, worker_mode, *arguments = sys.argv[1:]
    deployment.COMMANDS["frontend"] = (sys.executable, STUB, "frontend", frontend_mode)
    deployment.COMMANDS["worker"] = (sys.executable, STUB, "worker", worker_mode)
    run.READY_TIMEOUT_S = 2.0
    run.STOP_GRACE_S = 0.5
    return run.main(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
