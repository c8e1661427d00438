"""The multiprocess folder: private by default, the operator's when named, never a dead one's."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sglang_worker.config import environment
from sglang_worker.config.worker_config import (
    EndpointAddress,
    EngineFlags,
    WorkerConfig,
    WorkerType,
)
from sglang_worker.errors import ConfigError
from sglang_worker.observability.metrics.folder import OLD_VARIABLE, VARIABLE, claim

from tests.support.tiny_model import write_tiny_model

CLAIM_AND_WAIT = """
import sys
from pathlib import Path
from sglang_worker.observability.metrics.folder import claim
print(claim({}, Path(sys.argv[1])).path, flush=True)
sys.stdin.read()
"""


def owner(parent: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CLAIM_AND_WAIT, str(parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def claimed_by(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def finish(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=30)


def test_a_private_folder_is_for_this_user_alone_and_goes_with_its_process(tmp_path: Path) -> None:
    process = owner(tmp_path)
    path = claimed_by(process)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert path.parent == tmp_path
    finish(process)
    assert not path.exists()


def test_a_folder_that_a_killed_worker_left_is_removed_and_a_living_ones_is_not(
    tmp_path: Path,
) -> None:
    killed, living = owner(tmp_path), owner(tmp_path)
    left, kept = claimed_by(killed), claimed_by(living)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert left.exists()
    claim({}, tmp_path)
    assert not left.exists() and kept.exists()
    finish(living)


def test_a_forked_child_keeps_the_folder_alive_and_does_not_remove_it(tmp_path: Path) -> None:
    folder = claim({}, tmp_path)
    child = os.fork()
    if child == 0:
        # As the interpreter ends; the parent owns the folder.
        import atexit

        atexit._run_exitfuncs()
        os._exit(0)
    os.waitpid(child, 0)
    assert folder.path.exists()


def test_the_operators_folder_is_used_as_it_is_and_made_when_absent(tmp_path: Path) -> None:
    mine = tmp_path / "shared" / "metrics"
    assert claim({VARIABLE: str(mine)}).path == mine
    assert mine.is_dir()
    assert claim({OLD_VARIABLE: str(mine)}).private is False


def test_files_of_ended_processes_leave_the_operators_folder_and_others_stay(
    tmp_path: Path,
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    stale = [
        tmp_path / f"counter_{ended.pid}.db",
        tmp_path / f"gauge_mostrecent_{ended.pid}.db",
        # A new process got the number of an old one, as in a container that restarts.
        tmp_path / f"histogram_{os.getppid()}.db",
        tmp_path / f"summary_{os.getpid()}.db",
    ]
    kept = [tmp_path / f"counter_{os.getppid()}.db", tmp_path / "notes.txt"]
    for file in (*stale, *kept):
        file.write_bytes(b"")
    os.utime(stale[2], (1, 1))
    claim({VARIABLE: str(tmp_path)})
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_a_folder_that_cannot_be_used_is_refused_by_the_variables_name(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for name in (VARIABLE, OLD_VARIABLE):
        with pytest.raises(ConfigError, match=rf"{name}={file}"):
            claim({name: str(file)})


def test_a_stale_file_that_stays_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "counter_99999999999999999999.db").mkdir()
    with pytest.raises(ConfigError, match=r"counter_9+\.db.* cannot be removed"):
        claim({"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)})


def test_without_any_place_for_it_the_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=VARIABLE):
        claim({}, tmp_path / "missing")


def config_with(**explicit: object) -> WorkerConfig:
    return WorkerConfig(
        WorkerType.AGGREGATED,
        EndpointAddress("dynamo", "backend", "generate"),
        EngineFlags(explicit=explicit),
    )


def test_the_environment_names_it_only_with_enable_metrics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv(OLD_VARIABLE, raising=False)
    environment.claim_metrics_folder(config_with())
    assert VARIABLE not in os.environ
    environment.claim_metrics_folder(config_with(enable_metrics=True))
    assert stat.S_IMODE(os.stat(os.environ[VARIABLE]).st_mode) == 0o700


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    environment.claim_metrics_folder(config_with())
    assert VARIABLE not in os.environ


def test_nothing_imports_prometheus_client_before_the_folder_is_named(tmp_path: Path) -> None:
    """From the entry to the applied environment, as `boot.startup` does it."""
    model = write_tiny_model(tmp_path / "model")
    program = f"""
import os, sys
from sglang_worker import main
from sglang_worker.boot import startup
from sglang_worker.config import environment
from sglang_worker.config.server_args import build_server_args
config = startup.configure(["--model-path", {str(model)!r}, "--enable-metrics"], os.environ)
assert "prometheus_client" not in sys.modules
environment.apply(config)
build_server_args(config)
from prometheus_client import values
print(values.ValueClass._multiprocess)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert run.stdout.strip().endswith("True"), run.stderr[-2000:]
