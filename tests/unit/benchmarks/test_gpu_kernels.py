"""The kernel table's waves and its comparison, with rows that start no engine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_kernels import RESULTS
from benchmarks.gpu_rates import choices, markdown, waves
from benchmarks.gpu_rates.rows import DEFAULT_SETS, SETS, Row, row_named
from benchmarks.gpu_rates.shapes import Timing

# What a row does, without an engine: ready, then a result per round.
ROW = """
import json, sys, time
from pathlib import Path
from benchmarks.gpu_rates.turns import Turn

folder, index, fate, log = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
turn = Turn(folder, index)
if fate == "crashes":
    print("no memory", flush=True)
    raise SystemExit(9)
if fate == "hangs":
    time.sleep(600)
for number in range(2):
    if not turn.take(number, time.monotonic() + 60):
        raise SystemExit(1)
    with log.open("a") as book:
        book.write(f"{number}.{index} ")
    (folder / f"{index}.json").write_text(json.dumps({"row": fate, "rounds": number + 1}))
    turn.done(number).touch()
time.sleep(600)
"""


def plan(folder: Path, least_s: float = 1.0) -> waves.Plan:
    def command(row: Row, index: int, end_s: float) -> list[str]:
        return [
            *(sys.executable, "-c", ROW, str(folder), str(index), row.name),
            str(folder / "book"),
        ]

    return waves.Plan(folder=folder, rounds=2, command=command, least_s=least_s)


def test_every_row_is_timed_once_before_any_is_timed_again(tmp_path: Path) -> None:
    rows = [Row("one"), Row("two"), Row("three")]
    found = list(waves.run(plan(tmp_path), waves.split(rows, 2), total_s=120))
    assert [(one["row"], one["rounds"]) for one in found] == [("one", 2), ("two", 2), ("three", 2)]
    assert (tmp_path / "book").read_text().split() == ["0.0", "0.1", "1.0", "1.1", "0.2", "1.2"]


def test_a_row_that_crashes_or_hangs_is_named_and_the_others_are_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [Row("crashes"), Row("whole"), Row("hangs")]
    found = {one["row"]: one for one in waves.run(plan(tmp_path), [rows], total_s=15)}
    assert found["whole"]["rounds"] == 2
    assert "no result was written" in found["crashes"]["error"]
    assert found["crashes"]["log_tail"] == "no memory\n"
    assert "no result was written" in found["hangs"]["error"]
    assert "no memory" in capsys.readouterr().out


def test_rows_that_start_late_but_close_to_each_other_are_all_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waves, "START_SHARE", 0.0)
    rows = [Row("one"), Row("two")]
    found = list(waves.run(plan(tmp_path), [rows], total_s=120))
    assert [(one["row"], one["rounds"]) for one in found] == [("one", 2), ("two", 2)]


def test_a_wave_without_time_is_not_started(tmp_path: Path) -> None:
    found = list(waves.run(plan(tmp_path, least_s=60), [[Row("one", kind="mixed")]], total_s=1))
    assert found == [
        {"row": "one", "kind": "mixed", "error": "not started: no time was left"},
    ]


def test_the_first_wave_gets_more_and_the_last_one_all_that_is_left() -> None:
    assert waves.share_s(500, 2, 0) == pytest.approx(300)
    assert waves.share_s(300, 1, 1) == 300


def test_each_default_set_fits_side_by_side_and_compares_single_with_mixed() -> None:
    for name in DEFAULT_SETS:
        assert len(SETS[name]) <= 5
        assert {"single", "mixed"} <= {row.kind for row in SETS[name]}
    assert {row.name.partition(":")[0] for row in SETS["drafts"]} == {
        "NEXTN",
        "NEXTN tree, topk 2",
        "STANDALONE",
    }
    assert row_named("STANDALONE: defaults").dense_draft


def result(name: str, kind: str, *rounds: tuple[float, ...]) -> dict[str, Any]:
    return {"row": name, "kind": kind, "times": {"decode 32": Timing(rounds).record()}}


def test_the_best_of_each_kind_is_compared_round_by_round() -> None:
    table = choices.render(
        [
            result("target: triton alone", "single", (4.0, 4.2), (4.1, 4.3)),
            result("target: flashinfer alone", "single", (9.0,), (9.0,)),
            result("target: defaults", "mixed", (3.0, 3.2), (4.4, 4.6)),
            result("NEXTN: defaults", "mixed", (1.0,), (1.0,)),
            {"row": "target: cutedsl alone", "kind": "single", "error": "no memory"},
        ]
    )
    assert table.splitlines()[2:] == [
        "| target | decode 32 | triton alone | 4.15 | defaults | 3.80 | +8.4 % | 1 of 2 |"
    ]


def test_nothing_is_compared_where_only_one_kind_ran() -> None:
    assert choices.render([result("target: defaults", "mixed", (1.0,))]) == ""


def test_a_row_that_failed_stands_below_the_table_with_its_reason() -> None:
    text = markdown.render([{"row": "target: defaults", "error": "no memory"}])
    assert text.splitlines()[-1] == "- target: defaults: no memory"


def test_the_results_that_are_committed_can_still_be_drawn() -> None:
    import json

    rows = json.loads((RESULTS / "gpu_kernels.json").read_text())["rows"]
    for line in markdown.render(rows).splitlines()[2:4]:
        assert line in (RESULTS / "gpu_kernels.md").read_text()
