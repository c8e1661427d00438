"""Console entry: ``sglang-worker`` is the worker, ``sglang-worker ctl …`` the operator's client."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["ctl"]:
        from sglang_worker.ctl.command import main as ctl_main

        return ctl_main(arguments[1:])
    from sglang_worker.main import main as worker_main

    return worker_main(arguments)
