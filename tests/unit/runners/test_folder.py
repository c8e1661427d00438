from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator

import pytest
from sglang_worker.runners.folder import VARIABLE, ReportFolder, Settings

from tests.unit.runners.builders import rank_record


@pytest.fixture
def environ() -> dict[str, str]:
    return {}


@pytest.fixture
def folder(environ: dict[str, str]) -> Iterator[ReportFolder]:
    made = ReportFolder.create(environ, Settings(strict=False))
    yield made
    made.remove()


def test_only_its_owner_may_look_into_the_folder(folder: ReportFolder) -> None:
    folder.write(rank_record(3))
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder.path / "rank-3.json").stat().st_mode) == 0o600


def test_children_find_the_folder_and_its_strictness_in_their_environment(
    folder: ReportFolder, environ: dict[str, str]
) -> None:
    found = ReportFolder.from_environment(environ)
    assert found is not None
    assert found.path == folder.path
    assert found.settings.strict is False


def test_each_rank_has_a_file_of_its_own(folder: ReportFolder) -> None:
    for rank in (0, 1, 2):
        folder.write(rank_record(rank))
    assert sorted(folder.read()) == [0, 1, 2]
    assert folder.read()[2] == rank_record(2)


def test_a_rank_that_writes_again_replaces_its_report(folder: ReportFolder) -> None:
    folder.write(rank_record(0))
    folder.write(rank_record(0, errors=("broken",)))
    assert folder.errors() == ["broken"]


def test_a_half_written_file_is_never_read(folder: ReportFolder) -> None:
    (folder.path / "rank-0.123.part").write_text('{"identity":')
    assert folder.read() == {}


def test_no_variable_or_a_removed_folder_means_no_folder(
    folder: ReportFolder, environ: dict[str, str]
) -> None:
    assert ReportFolder.from_environment({}) is None
    folder.remove()
    assert ReportFolder.from_environment(environ) is None


MAKES_A_FOLDER_AND_FORKS = """
import os
from sglang_worker.runners.folder import ReportFolder, Settings
folder = ReportFolder.create({}, Settings())
child = os.fork()
if child == 0:
    raise SystemExit(0)   # runs the inherited exit handlers
os.waitpid(child, 0)
print(folder.path, folder.path.exists())
"""


def test_the_folder_goes_when_its_maker_ends_and_not_when_a_forked_child_does() -> None:
    run = subprocess.run(
        [sys.executable, "-c", MAKES_A_FOLDER_AND_FORKS],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={k: v for k, v in os.environ.items() if k != VARIABLE},
    )
    path, survived_the_child = run.stdout.split()
    assert survived_the_child == "True"
    assert not os.path.exists(path)
