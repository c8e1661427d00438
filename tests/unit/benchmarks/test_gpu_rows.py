"""Rows as processes: bounded, ended with all that they started, and never without a result."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu_rows import served
from benchmarks.gpu_rows.options import engine_options
from benchmarks.gpu_rows.processes import RowProcess
from benchmarks.gpu_rows.results import read_row, write_whole
from tests.support.stack import Stack
from tests.support.wait import wait_until

# A row that leaves a process of its own behind, as a crashed engine does.
LEAVES_ONE = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def is_gone(pid: int) -> bool:
    """Ended, also when nobody has asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_the_exit_code_comes_back_and_the_log_has_what_was_printed(tmp_path: Path) -> None:
    row = RowProcess(python("print('so far'); raise SystemExit(3)"), tmp_path / "log")
    assert row.wait(60) == 3
    assert row.log_tail(100) == "so far\n"


def test_what_a_row_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    row = RowProcess(python(LEAVES_ONE), tmp_path / "log")
    assert row.wait(60) == 0
    left = int(row.log_tail(100))
    wait_until(lambda: is_gone(left), "the process left behind is gone", deadline_s=20)


def test_a_row_over_its_limit_is_killed_and_says_so(tmp_path: Path) -> None:
    row = RowProcess(python("import time; time.sleep(600)"), tmp_path / "log")
    assert row.wait(0.2) == "killed after 0 s"
    assert row.ended


def test_a_paused_row_does_nothing_until_it_goes_on(tmp_path: Path) -> None:
    began, told = tmp_path / "began", tmp_path / "told"
    code = f"open({str(began)!r}, 'w'); input(); open({str(told)!r}, 'w')"
    pipe, end = os.pipe()
    saved = os.dup(0)
    try:
        os.dup2(pipe, 0)
        row = RowProcess(python(code), tmp_path / "log")
    finally:
        os.dup2(saved, 0)
        os.close(saved)
        os.close(pipe)
    try:
        wait_until(began.exists, "the row runs", deadline_s=20)
        row.pause()
        stat = Path(f"/proc/{row._child.pid}/stat")
        wait_until(
            lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T", "stopped", deadline_s=20
        )
        os.write(end, b"\n")
        assert not told.exists()
        row.go_on()
        wait_until(told.exists, "the row has gone on", deadline_s=20)
    finally:
        row.end()
        os.close(end)


def test_a_variable_reaches_the_row(tmp_path: Path) -> None:
    code = "import os; print(os.environ['ROW_NUMBER'])"
    row = RowProcess(python(code), tmp_path / "log", {"ROW_NUMBER": "7"})
    assert row.wait(60) == 0
    assert row.log_tail(100) == "7\n"


@pytest.mark.parametrize("content", [None, "", "{"])
def test_a_row_without_a_readable_result_is_an_error(tmp_path: Path, content: str | None) -> None:
    output = tmp_path / "row.json"
    if content is not None:
        output.write_text(content)
    found = read_row("plain", output)
    assert found["row"] == "plain"
    assert found["error"].startswith("no result was written: ")


def test_a_result_is_written_whole_and_leaves_no_part(tmp_path: Path) -> None:
    output = tmp_path / "row.json"
    write_whole(output, {"row": "plain", "path": tmp_path}, label="3")
    assert read_row("plain", output) == {"row": "plain", "path": str(tmp_path)}
    assert [one.name for one in tmp_path.iterdir()] == ["row.json"]


def test_rows_side_by_side_have_ports_of_their_own_and_a_dry_run_chooses_no_kernels() -> None:
    row = {"linear_attn_backend": "cutedsl", "speculative_algorithm": "NEXTN"}
    first, second = (
        engine_options("m", index, row, dry_run=index == 1, device={"max_running_requests": 9})
        for index in (0, 1)
    )
    assert first["port"] != second["port"]
    assert first["nccl_port"] != second["nccl_port"]
    assert (first["linear_attn_backend"], first["max_running_requests"]) == ("cutedsl", 9)
    assert "linear_attn_backend" not in second
    assert (second["device"], second["speculative_algorithm"]) == ("cpu", "NEXTN")


def test_a_row_that_fails_says_why_and_the_next_one_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--results", str(tmp_path / "r.json"), "--table", str(tmp_path / "r.md")]
    options = served.parser("", "a+b,c", 1.0).parse_args(files)
    seen: list[list[str]] = []

    def serve(stack: Stack, row: dict[str, Any]) -> None:
        row["folder"] = stack.folder.name
        if row["folder"] == "b":
            served.require({"tokens": (1, 2), "exit code": (0, 0)})

    def judge(rows: served.Rows) -> served.Rows:
        seen.append(list(rows))
        return rows

    code = served.run_table(
        options,
        lambda name: served.run_row(tmp_path / name, {}, {}, serve),
        judge,
        SimpleNamespace(render=lambda rows: f"{len(rows)} rows"),
    )
    rows = json.loads(options.results.read_text())
    assert seen == [["a", "b"], ["a", "b", "c"]]
    assert {name: row["failed"] for name, row in rows.items()} == {
        "a": None,
        "b": "AssertionError: tokens is 1, not 2",
        "c": None,
    }
    assert code == 1
    assert options.table.read_text() == "3 rows"
    assert "3 rows\n--- b: AssertionError: tokens is 1, not 2" in capsys.readouterr().out
    assert served.ended({"a": rows["a"]}) == 0
