from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
from sglang_worker.engine.signals import SignalOwner


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    kept[signal.SIGQUIT] = signal.getsignal(signal.SIGQUIT)
    yield loop
    loop.close()
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_registrations_of_others_are_kept_for_the_end_and_ours_stay(
    loop: asyncio.AbstractEventLoop,
) -> None:
    stops: list[int] = []
    others: list[str] = []
    owner = SignalOwner(loop, stops.append, lambda: None)
    owner.own()

    async def scene() -> None:
        loop.add_signal_handler(signal.SIGTERM, others.append, "sync")

        async def later() -> None:
            others.append("async")

        loop.add_signal_handler(signal.SIGTERM, later)
        loop.add_signal_handler(signal.SIGTERM, lambda: 1 / 0)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)
        assert (stops, others) == ([signal.SIGTERM], [])
        assert owner.deferred == {signal.SIGTERM: 3}
        await owner.run_deferred(signal.SIGTERM)
        await owner.run_deferred(signal.SIGTERM)
        assert others == ["sync", "async"]

    loop.run_until_complete(scene())


def test_a_child_that_reports_failure_reaches_the_worker_and_does_not_kill_it(
    loop: asyncio.AbstractEventLoop,
) -> None:
    quits: list[bool] = []
    SignalOwner(loop, lambda _: None, lambda: quits.append(True)).own()

    async def scene() -> None:
        loop.add_signal_handler(signal.SIGQUIT, lambda: os._exit(9))
        os.kill(os.getpid(), signal.SIGQUIT)
        await asyncio.sleep(0.05)

    loop.run_until_complete(scene())
    assert quits == [True]


def test_other_signals_are_nobodys_business(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[bool] = []
    SignalOwner(loop, lambda _: None, lambda: None).own()

    async def scene() -> None:
        loop.add_signal_handler(signal.SIGUSR1, lambda: seen.append(True))
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.sleep(0.05)
        loop.remove_signal_handler(signal.SIGUSR1)

    loop.run_until_complete(scene())
    assert seen == [True]


EARLY = """
    import os, signal, sys, time
    from sglang_worker.engine import signals
    signals.EARLY.own()
    try:
        print("up", flush=True)
        time.sleep(600)
    except signals.StopRequested as stop:
        print(stop, flush=True)
        time.sleep(600)
"""


def test_a_signal_before_the_loop_raises_and_a_second_one_leaves_at_once() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(EARLY)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "SIGTERM\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 128 + signal.SIGINT
    process.stdout.close()


DROPPED = """
    import os, signal, time
    from sglang_worker.engine import signals
    signals.EARLY.own()

    class Finalized:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)  # the handler raises here, and Python drops what it raises

    try:
        Finalized()
        print("dropped", flush=True)
        time.sleep(600)
    except signals.StopRequested as stop:
        print(stop, flush=True)
"""
SWALLOWED = """
    import os, signal, time
    from sglang_worker.engine import signals
    signals.EARLY.own()
    signals.EARLY.raise_requested()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
    except BaseException:
        print("swallowed", flush=True)
    try:
        signals.EARLY.raise_requested()
    except signals.StopRequested as stop:
        print(stop, flush=True)
"""


@pytest.mark.parametrize(
    ("program", "words"), [(DROPPED, ["dropped", "SIGTERM"]), (SWALLOWED, ["swallowed", "SIGTERM"])]
)
def test_a_stop_that_something_drops_is_asked_for_again(program: str, words: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout.split() == words, ended.stderr
