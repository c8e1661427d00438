from __future__ import annotations

import json

import pytest
from sglang_worker.runners.report import Difference, Reason, from_builtins, to_builtins, to_json

from tests.unit.runners.builders import report

DESIGN_FIELDS = [
    "runner",
    "model",
    "family",
    "attention_backend",
    "stamp",
    "source",
    "kernels",
    "agrees",
    "differences",
    "shared_experts_fusion",
    "report_valid",
    "ranks",
]


def test_the_json_has_the_contracts_fields_in_the_contracts_order() -> None:
    (built,) = to_builtins([report()])
    assert list(built) == DESIGN_FIELDS
    assert built["source"] == {"decode": "base", "prefill": "base", "verify": "rule"}
    assert built["ranks"] == [0]


def test_a_draft_without_a_backend_shows_null_kernels_and_says_why() -> None:
    difference = Difference("all", None, None, Reason.NO_BACKEND)
    (built,) = to_builtins([report(kernels=None, agrees=None, differences=(difference,))])
    assert built["kernels"] is None
    assert built["agrees"] is None
    assert built["differences"] == [
        {"phase": "all", "stamp": None, "kernel": None, "reason": "no_backend"}
    ]


def test_what_was_built_reads_back_as_the_same_reports() -> None:
    reports = (report(), report(1, runner="draft", stamp=None, source=None, kernels=None))
    assert from_builtins(to_builtins(reports)) == reports


def test_the_card_text_is_one_line_of_the_same_json() -> None:
    text = to_json([report()])
    assert "\n" not in text
    assert json.loads(text) == to_builtins([report()])


def test_reports_cannot_be_changed_after_they_were_made() -> None:
    with pytest.raises(AttributeError):
        report().model = "another"  # type: ignore[misc]
