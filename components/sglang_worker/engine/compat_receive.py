"""SGLang's receive loop, watched: `engine.pace` learns when messages queue in front of it.

Read in SGLang 0.5.20 to 0.5.23: ``managers/tokenizer_manager.py`` (``handle_loop`` awaits
``_handle_batch_output`` for every message of ``recv_from_detokenizer``, a ``zmq.asyncio`` socket).
"""

from __future__ import annotations

from typing import Any

from sglang_worker.engine.pace import Pace

_ATTRIBUTE = "sglang_worker_pace"
_NEVER_BEHIND = Pace()


def pace_of(tokenizer_manager: Any) -> Pace:
    """The pace that `watch` gave it; one that never holds anybody when it was not watched."""
    pace = getattr(tokenizer_manager, _ATTRIBUTE, None)
    return pace if isinstance(pace, Pace) else _NEVER_BEHIND


def watch(tokenizer_manager: Any) -> Pace | None:
    """Begin to watch; None where this SGLang receives in another way. A second call is harmless."""
    if (watched := pace_of(tokenizer_manager)) is not _NEVER_BEHIND:
        return watched
    socket = getattr(tokenizer_manager, "recv_from_detokenizer", None)
    handle = getattr(tokenizer_manager, "_handle_batch_output", None)
    if handle is None or not hasattr(socket, "get"):
        return None
    pace = Pace()

    async def handle_watched(message: Any) -> None:
        waiting = has_message(socket)
        pace.look(waiting)
        await handle(message)
        if not waiting:
            # Only now: what this message brought is handed over with what was collected before.
            pace.let_go()

    tokenizer_manager._handle_batch_output = handle_watched
    setattr(tokenizer_manager, _ATTRIBUTE, pace)
    return pace


def has_message(socket: Any) -> bool:
    """Whether a message can be received at once.

    A socket's event flags are edge-triggered, so reading them can lose a wake-up; pyzmq's
    asynchronous ``get`` schedules what is left after every such read.
    """
    from zmq.constants import PollEvent, SocketOption

    return bool(socket.get(SocketOption.EVENTS) & PollEvent.POLLIN)
