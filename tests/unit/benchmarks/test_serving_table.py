"""The table of the GPU serving comparison."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_rates.serving_table import tables

SHAPE = {"name": "decode", "batch": 2, "prompt_tokens": 8, "new_tokens": 4}


def row(**more: Any) -> dict[str, Any]:
    return {
        "shape": SHAPE,
        "tokens_per_s": {"bare stream": [100.0, 50.0, 200.0], "worker stream": [80.0, 40.0, 160.0]},
        "first_token_ms": {"bare stream": [10.0, 9.0, 11.0], "worker stream": [12.0, 11.0, 13.0]},
        "cpu_us_per_token": {"worker stream": [40.0, 50.0]},
        **more,
    }


def test_a_machine_that_drifts_shows_in_the_medians_but_not_in_the_rounds() -> None:
    seconds = {"bare stream": [1.0, 2.0, 8.0], "worker stream": [1.0, 2.0, 10.0]}
    assert "80 (40 to 160) (0.80; by round 1.00)" in tables([row(seconds=seconds)])


def test_records_without_rounds_have_the_medians_ratio_alone() -> None:
    text = tables([row()])
    assert "80 (40 to 160) (0.80)" in text
    assert "whole" not in text, "only the ways that were asked"
