"""The gateway's program: ``python -m sglang_worker.gateway.child PAIR_FD OWNER_PID``.

Imports SGLang and the runtime while the main process loads the model, waits for its plan, joins
the engine, and from there on is a worker as any other: `boot.serving.Serving`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Sequence

from sglang_worker.engine.children import ORPHANED, die_with_parent


def main(argv: Sequence[str]) -> int:
    descriptor, owner_pid = int(argv[0]), int(argv[1])
    # Before anything slow: a main process that is killed now would leave us behind.
    die_with_parent(owner_pid)
    from sglang_worker.boot.ending import ENDING

    ENDING.arm()
    ENDING.code = _answer(socket.socket(fileno=descriptor))
    return ENDING.code


def _answer(pair: socket.socket) -> int:
    from sglang_worker.engine import signals
    from sglang_worker.errors import ExitCode, WorkerError
    from sglang_worker.observability.logs import setup as logs

    try:
        signals.EARLY.own()
        logs.configure(os.environ)
        return _serve(pair)
    except signals.StopRequested:
        return ExitCode.STOPPED
    except WorkerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _serve(pair: socket.socket) -> int:
    from sglang_worker.config import environment
    from sglang_worker.engine import compat_gateway, signals
    from sglang_worker.gateway import attached, wire
    from sglang_worker.observability.logs import setup as logs
    from sglang_worker.redaction import hide_in_logs, secret_values
    from sglang_worker.requests import ids

    _import_ahead()
    plan = wire.read_plan(pair)
    if plan is None:
        return ORPHANED
    environment.export(plan.environ)
    hide_in_logs(secret_values(plan.config.engine.explicit))
    # The engine aborts by prefix: all requests of this gateway can be ended by one message.
    ids.mark(ids.gateway_mark(plan.index))
    engine = attached.AttachedEngine(compat_gateway.attach(plan.owner_pid), plan.started_in_s)
    logs.settle()
    signals.EARLY.raise_requested()
    try:
        return int(engine.loop.run_until_complete(_run(plan, engine, pair)))
    finally:
        engine.shutdown()


def _import_ahead() -> None:
    """What takes seconds, while the engine starts."""
    import dynamo.llm  # noqa: F401
    import sglang.srt.entrypoints.engine  # noqa: F401

    import sglang_worker.boot.serving
    import sglang_worker.workers.decode  # noqa: F401


async def _run(plan: object, engine: object, pair: socket.socket) -> int:
    from sglang_worker.boot.serving import Serving
    from sglang_worker.boot.startup import InGateway, Started
    from sglang_worker.gateway.attached import AttachedEngine
    from sglang_worker.gateway.outlet import GatewayOutlet, hear
    from sglang_worker.gateway.wire import Plan

    assert isinstance(plan, Plan) and isinstance(engine, AttachedEngine)
    reader, writer = await asyncio.open_connection(sock=pair)
    outlet = GatewayOutlet(writer, lambda: len(engine.held_request_ids()))
    started = Started(
        config=plan.config,
        engine=engine,
        runners=None,
        listener=None,
        in_gateway=InGateway(plan.index, outlet, plan.runners),
    )
    tasks = [
        asyncio.ensure_future(hear(reader, engine.died, lambda: os._exit(ORPHANED))),
        asyncio.ensure_future(outlet.beat()),
    ]
    try:
        return int(await Serving(started, engine.loop).run())
    finally:
        for task in tasks:
            task.cancel()
        writer.close()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
