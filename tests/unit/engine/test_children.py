"""Real processes: what a child does when the worker dies under it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from sglang_worker.engine.children import EntryPoint, kill_trees

from tests.support.environment import REPOSITORY
from tests.support.wait import wait_until

PARENT = """
    import multiprocessing, os, sys, time
    from sglang_worker.engine.children import EntryPoint
    if __name__ == "__main__":
        multiprocessing.set_start_method(sys.argv[1])
        child = multiprocessing.Process(target=EntryPoint("time", "sleep"), args=(600,))
        child.start()
        print(child.pid, flush=True)
        time.sleep(600)
"""


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_dies_with_a_parent_that_is_killed_outright(method: str, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(PARENT))
    parent = subprocess.Popen([sys.executable, script, method], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    # Under spawn the request to the kernel is made while the child still starts.
    wait_until(lambda: not gone(child), "the child runs", deadline_s=10)
    if method == "spawn":
        wait_until(
            lambda: (
                psutil.Process(child).num_threads() >= 1
                and "spawn_main" in " ".join(psutil.Process(child).cmdline())
            ),
            "the child was spawned",
            deadline_s=10,
        )
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: gone(child), "the child is gone", deadline_s=10)


def test_an_entry_point_survives_pickling_and_calls_its_function_late() -> None:
    entry = pickle.loads(pickle.dumps(EntryPoint("operator", "add")))
    assert entry(2, 3) == 5


def test_killing_a_tree_takes_its_descendants_and_nothing_else() -> None:
    code = "import subprocess, sys, time; " + (
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        "print(p.pid, flush=True); time.sleep(600)"
    )
    tree = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    assert tree.stdout is not None
    grandchild = int(tree.stdout.readline())
    try:
        assert kill_trees([tree.pid, 2**22 - 1]) == []
        assert gone(grandchild)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        tree.wait()
        tree.stdout.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_leaves_an_interrupt_to_its_parent(method: str, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(INTERRUPTED))
    done = subprocess.run(
        [sys.executable, script, method],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.stdout == "still here\n", done.stderr


INTERRUPTED = """
    import multiprocessing, os, signal, sys
    from sglang_worker.engine.children import EntryPoint
    if __name__ == "__main__":
        multiprocessing.set_start_method(sys.argv[1])
        here, there = multiprocessing.Pipe()
        process = multiprocessing.Process(
            target=EntryPoint("tests.unit.engine.echo_child", "echo"), args=(there,)
        )
        process.start()
        there.close()
        here.recv()
        os.kill(process.pid, signal.SIGINT)
        here.send("still here")
        print(here.recv(), flush=True)
        process.join()
"""
