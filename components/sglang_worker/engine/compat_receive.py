"""SGLang's receive loop, watched: `engine.pace` learns when messages queue in front of it.

Read in SGLang 0.5.20 to 0.5.23: ``managers/tokenizer_manager.py`` (``handle_loop`` awaits
``_handle_batch_output`` for every message with outputs of ``recv_from_detokenizer``, a
``zmq.asyncio`` socket, and calls ``_result_dispatcher`` for every other).
"""

from __future__ import annotations

from typing import Any

from sglang_worker.engine import compat_outputs
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
    compat_outputs.join_alike(tokenizer_manager)
    pace = Pace()

    async def handle_watched(message: Any) -> None:
        pace.begin(has_message(socket))
        await handle(message)
        pace.end()

    tokenizer_manager._handle_batch_output = handle_watched
    _watch_other_messages(tokenizer_manager, socket, pace)
    setattr(tokenizer_manager, _ATTRIBUTE, pace)
    return pace


def _watch_other_messages(tokenizer_manager: Any, socket: Any, pace: Pace) -> None:
    """A backlog may end with one of them. It would otherwise seem to last until the next output,
    however much later that comes."""
    dispatch = getattr(tokenizer_manager, "_result_dispatcher", None)
    if not callable(dispatch):
        return

    def dispatch_watched(message: Any) -> None:
        dispatch(message)
        if not has_message(socket):
            pace.begin(False)
            pace.end()

    tokenizer_manager._result_dispatcher = dispatch_watched


def has_message(socket: Any) -> bool:
    """Whether a message can be received at once.

    A socket's event flags are edge-triggered, so reading them can lose a wake-up; pyzmq's
    asynchronous ``get`` schedules what is left after every such read.
    """
    from zmq.constants import PollEvent, SocketOption

    return bool(socket.get(SocketOption.EVENTS) & PollEvent.POLLIN)
