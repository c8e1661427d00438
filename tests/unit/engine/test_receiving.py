"""What SGLang's tokenizer manager starts on our loop, and what of it may end the process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
from sglang_worker.engine import compat
from sglang_worker.engine.signals import SignalOwner


class Manager(SimpleNamespace):
    """SGLang's own `auto_create_handle_loop` on what it reads."""

    def __init__(self) -> None:
        from sglang.srt.managers.tokenizer_manager import SignalHandler, TokenizerManager

        super().__init__(event_loop=None, asyncio_tasks=set(), gracefully_exit=False)
        self.signal_handler_class = SignalHandler
        self.auto_create_handle_loop = MethodType(TokenizerManager.auto_create_handle_loop, self)
        self.received = asyncio.Event()
        self.ended_the_process = False

    async def handle_loop(self) -> None:
        self.received.set()

    async def sigterm_watchdog(self) -> None:
        self.ended_the_process = True


@pytest.fixture
def kept() -> Any:
    """Handlers of this process as they were."""
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


async def test_sglangs_handler_of_sigterm_runs_but_does_not_end_the_process(kept: Any) -> None:
    loop = asyncio.get_running_loop()
    ignored: Callable[..., None] = lambda *_: None  # noqa: E731
    signals = SignalOwner(loop, on_stop=ignored, on_quit=ignored)
    signals.own()
    manager = Manager()
    compat.start_receiving(manager)
    await asyncio.wait_for(manager.received.wait(), 10)
    await signals.run_deferred()
    await asyncio.gather(*manager.asyncio_tasks)
    assert manager.gracefully_exit, "SGLang's own handler did not run"
    assert not manager.ended_the_process
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        loop.remove_signal_handler(signum)
