from __future__ import annotations

import asyncio
import subprocess
import sys

from sglang_worker.engine.death import Death, DeathWatch


def started(code: str = "import time; time.sleep(600)") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code])


async def test_the_first_death_is_told_once_and_by_name() -> None:
    told: list[Death] = []
    first, second = started(), started()
    arrived = asyncio.Event()

    def on_death(death: Death) -> None:
        told.append(death)
        arrived.set()

    watch = DeathWatch({first.pid: "scheduler 0", second.pid: "detokenizer"}, on_death)
    watch.start(asyncio.get_running_loop())
    second.kill()
    await asyncio.wait_for(arrived.wait(), 10)
    first.kill()
    first.wait()
    second.wait()
    await asyncio.sleep(0.05)
    assert told == [Death("detokenizer", second.pid)]
    assert str(told[0]) == f"detokenizer (pid {second.pid}) died"


async def test_a_process_that_is_gone_before_the_watch_is_told_as_well() -> None:
    gone = started("")
    gone.wait()
    told: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
    DeathWatch({gone.pid: "scheduler 0"}, told.set_result).start(asyncio.get_running_loop())
    assert (await asyncio.wait_for(told, 10)).name == "scheduler 0"


async def test_a_planned_stop_is_no_death() -> None:
    told: list[Death] = []
    process = started()
    watch = DeathWatch({process.pid: "scheduler 0"}, told.append)
    watch.start(asyncio.get_running_loop())
    watch.stop()
    process.kill()
    process.wait()
    await asyncio.sleep(0.05)
    watch.report(Death("scheduler 0", 0))
    assert told == []


def test_a_child_that_reports_its_own_failure_has_no_pid_to_show() -> None:
    assert str(Death("an engine process", 0)) == "an engine process reported a fatal error"
