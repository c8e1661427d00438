"""The worker's entry: parse, start the engine, serve, stop. A failure is one line and a code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from sglang_worker.boot.ending import ENDING
from sglang_worker.engine import signals
from sglang_worker.errors import ConfigError, ExitCode, WorkerError
from sglang_worker.observability.logs import setup as logs


def main(argv: Sequence[str]) -> int:
    """Run the worker; returns the process's exit code (DESIGN section 2)."""
    ENDING.code = int(_answer(argv))
    return ENDING.code


def _answer(argv: Sequence[str]) -> int:
    try:
        signals.EARLY.own()
        return _run(argv)
    except signals.StopRequested as stop:
        print(f"stopped by {stop} while starting", file=sys.stderr)
        return ExitCode.STOPPED
    except WorkerError as error:
        kind = "configuration error" if isinstance(error, ConfigError) else "error"
        print(f"{kind}: {error}", file=sys.stderr)
        return error.exit_code


def _run(argv: Sequence[str]) -> int:
    from sglang_worker.config.command import handle_early

    answered = handle_early(argv, os.environ)  # help, version, check
    if answered is not None:
        return answered
    # Late imports: most mistakes end in `configure`, which loads neither SGLang nor the runtime.
    from sglang_worker.boot.startup import boot

    logs.configure(os.environ)
    started = boot(argv, os.environ)
    try:
        signals.EARLY.raise_requested()
        from sglang_worker.boot.follower import Follower, is_follower
        from sglang_worker.boot.serving import Serving
        from sglang_worker.gateway.host import GatewayHost, is_host

        loop = started.engine.loop
        program: type[Follower | GatewayHost | Serving] = Serving
        if is_host(started):
            program = GatewayHost
        elif is_follower(started):
            program = Follower
        return int(loop.run_until_complete(program(started, loop).run()))
    finally:
        started.close()
