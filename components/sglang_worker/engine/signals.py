"""Who gets which signal.

The worker owns SIGTERM, SIGINT and SIGQUIT from its first second to its last. SGLang registers its
own handlers through ``loop.add_signal_handler`` when the first request arrives; they are captured
instead of installed and run at the end of the shutdown (reference document, Graceful Shutdown).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

OWNED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

AGAIN_S = 0.05

logger = logging.getLogger(__name__)


class StopRequested(BaseException):
    """SIGTERM or SIGINT before the worker serves. A BaseException so that no ``except Exception``
    in the code under way swallows it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class EngineReportedFailure(BaseException):
    """A child of the engine sent SIGQUIT while the engine was starting."""


class EarlySignals:
    """Stop signals before a loop runs. The first one raises StopRequested in the main thread.

    It may be raised where Python or a library drops exceptions. Those that Python drops itself
    (finalizers, collector callbacks, at-fork hooks) are raised again by a timer; what a library
    swallows is still known as ``requested`` at the next milestone.
    """

    def __init__(self) -> None:
        self.requested: int | None = None

    def own(self) -> None:
        for signum in STOP_SIGNALS:
            signal.signal(signum, self._stop)
        report = sys.unraisablehook

        def dropped(unraisable: sys.UnraisableHookArgs) -> None:
            if isinstance(unraisable.exc_value, StopRequested):
                # Not at once: that would be inside the very callback that drops exceptions.
                signal.signal(signal.SIGALRM, self._again)
                signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
            else:
                report(unraisable)

        sys.unraisablehook = dropped

    def raise_requested(self) -> None:
        """At a milestone of the start: raise the StopRequested that something swallowed."""
        if self.requested is not None:
            raise StopRequested(self.requested)

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        self.requested = signum
        # Raising for a second signal would interrupt the clean-up that the first one started.
        for owned in STOP_SIGNALS:
            signal.signal(owned, _leave)
        raise StopRequested(signum)

    def _again(self, signum: int, frame: FrameType | None) -> None:
        self.raise_requested()


def _leave(signum: int, frame: FrameType | None) -> None:
    # The engine's processes are killed by the kernel when this process ends.
    os._exit(128 + signum)


EARLY = EarlySignals()
"""Those of this process."""


def own_quit_before_loop() -> None:
    """SGLang's launch-phase handler kills the worker itself; ours turns it into an error."""

    def fail(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)
        raise EngineReportedFailure

    signal.signal(signal.SIGQUIT, fail)


class SignalOwner:
    """Keeps our handlers installed on one loop and everybody else's for later."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_stop: Callable[[int], None],
        on_quit: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._on_stop = on_stop
        self._on_quit = on_quit
        self._deferred: dict[int, list[tuple[Callable[..., Any], tuple[Any, ...]]]] = {}
        self._install = loop.add_signal_handler

    def own(self) -> None:
        """Install our handlers and capture later registrations. Calling it again re-asserts."""
        for signum in STOP_SIGNALS:
            self._install(signum, self._on_stop, signum)
        self._install(signal.SIGQUIT, self._on_quit)
        self.capture()

    def capture(self) -> None:
        """From now on registrations of the owned signals are kept instead of installed."""
        # uvloop and asyncio loops accept an instance attribute; both look the method up on it.
        setattr(self._loop, "add_signal_handler", self._capture)  # noqa: B010

    def _capture(self, signum: int, callback: Callable[..., Any], *args: Any) -> None:
        if signum in OWNED:
            self._deferred.setdefault(signum, []).append((callback, args))
            return
        self._install(signum, callback, *args)

    @property
    def deferred(self) -> dict[int, int]:
        """How many handlers were captured, by signal number."""
        return {signum: len(handlers) for signum, handlers in self._deferred.items()}

    async def run_deferred(self, signum: int = signal.SIGTERM) -> None:
        """Run the captured handlers of ``signum`` once, in the order of their registration."""
        for callback, args in self._deferred.pop(signum, []):
            try:
                result = callback(*args)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                logger.exception("a deferred signal handler failed: %r", callback)
