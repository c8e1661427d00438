"""Blocking calls that hang leave the rest of the process alone, its end included."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sglang_worker.media.threads import BlockingCalls

HANGS = """
import asyncio, threading
from sglang_worker.media.threads import BlockingCalls
async def main():
    calls = BlockingCalls("test", 1)
    try:
        await asyncio.wait_for(calls.run(threading.Event().wait), 0.05)
    except asyncio.TimeoutError:
        print("given up", calls.running)
asyncio.run(main())
"""


async def test_a_call_returns_or_raises_what_its_function_does() -> None:
    calls = BlockingCalls("test", 2)
    assert await calls.run(max, 1, 2) == 2
    with pytest.raises(ZeroDivisionError):
        await calls.run(divmod, 1, 0)
    assert calls.running == 0


def test_a_call_that_never_returns_does_not_hold_up_the_end_of_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "given up 1"), done.stderr
