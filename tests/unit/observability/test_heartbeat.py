"""The counter that schedulers turn, between two real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sglang_worker.engine.heartbeat import Heartbeat, HeartbeatReader, install

SCHEDULER = """
import sys
from pathlib import Path
from sglang_worker.engine.heartbeat import install

class Scheduler:
    def process_input_requests(self, requests):
        return len(requests)

assert install(Scheduler, Path(sys.argv[1]), 1, 4)
scheduler = Scheduler()
for line in sys.stdin:
    assert scheduler.process_input_requests([1, 2]) == 2
    print("turned", flush=True)
"""


def test_the_worker_sees_another_processes_turns(tmp_path: Path) -> None:
    Heartbeat(tmp_path / "turns-0-0").turn()
    with subprocess.Popen(
        [sys.executable, "-c", SCHEDULER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        reader = HeartbeatReader(tmp_path, 2)
        for turns in (1, 2, 3):
            child.stdin.write("turn\n")
            child.stdin.flush()
            assert child.stdout.readline() == "turned\n"
            assert reader.read() == (1, turns)
        child.stdin.close()


def test_processes_of_one_replica_add_up_and_its_attention_ranks_share_them(tmp_path: Path) -> None:
    for rank in range(4):
        Heartbeat(tmp_path / f"turns-0-{rank}").turn()
    assert HeartbeatReader(tmp_path, 1).read() == (4,)
    assert HeartbeatReader(tmp_path, 2, one_replica=True).read() == (4, 4)


def test_without_a_folder_or_a_counter_nothing_is_claimed(tmp_path: Path) -> None:
    assert HeartbeatReader(None, 2).read() == (None, None)
    assert HeartbeatReader(tmp_path, 1).read() == (None,)


def test_replicas_on_another_node_are_unknown(tmp_path: Path) -> None:
    Heartbeat(tmp_path / "turns-0-0").turn()
    Heartbeat(tmp_path / "turns-3-9").turn()
    assert HeartbeatReader(tmp_path, 4).read() == (1, None, None, 1)


def test_a_scheduler_without_the_method_is_left_alone(tmp_path: Path) -> None:
    class Scheduler:
        pass

    assert not install(Scheduler, tmp_path, 0, 0)
    assert list(tmp_path.iterdir()) == []
