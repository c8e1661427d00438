"""What SGLang promises about per-runner choices, asked of its real classes in a real scheduler."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.runners_experiments import KDA_VARIABLE
from tests.engine.runners_fixture import Lab

pytestmark = pytest.mark.engine

Answers = dict[str, Any]


@pytest.fixture(scope="module")
def answers(runner_lab: Lab, checkpoint: Callable[[str], Path]) -> Answers:
    """One engine answers every question before it serves."""
    variables = {KDA_VARIABLE: str(checkpoint("kda"))}
    engine = runner_lab("gdn", twist="run_experiments", environ=variables)
    engine.generate(5)  # the questions come before the first request
    found: Answers = json.loads(engine.output.read_text())
    failed = {name: answer for name, answer in found.items() if "failed" in (answer or {})}
    assert not failed
    return found


def test_a_flag_beats_the_automatic_default_which_beats_the_base(answers: Answers) -> None:
    stamps = answers["precedence"]
    assert stamps["base"] == ["triton", "triton", "triton"]
    assert stamps["default"] == ["triton", "flashinfer", "triton"]
    assert stamps["flag over default"] == ["triton", "cutedsl", "triton"]
    assert stamps["default over base"] == ["cutedsl", "flashinfer", "triton"]
    assert stamps["decode flag"] == ["cutedsl", "triton", "triton"]


def test_unset_verify_follows_a_flashinfer_decode_and_is_triton_otherwise(
    answers: Answers,
) -> None:
    stamps = answers["precedence"]
    assert stamps["verify follows flashinfer"] == ["flashinfer", "triton", "flashinfer"]
    assert stamps["verify else triton"] == ["cutedsl", "cutedsl", "triton"]
    assert stamps["verify flag"] == ["flashinfer", "triton", "triton"]


@pytest.mark.parametrize("order", ["gdn first", "kda first"])
def test_two_runners_of_one_process_hold_different_choices(answers: Answers, order: str) -> None:
    found = answers["side_by_side"][order]
    assert found["gdn"]["family"] == "gdn"
    assert found["gdn"]["stamp"]["prefill"] == "flashinfer"
    assert found["gdn"]["source"]["prefill"] == "auto_default"
    assert found["gdn"]["kernels"]["prefill"] == "FlashInferGDNKernel"
    assert found["kda"]["family"] == "kda"
    assert found["kda"]["stamp"]["prefill"] == "triton"
    assert found["kda"]["source"]["prefill"] == "base"
    assert found["kda"]["kernels"]["prefill"] == "ReferenceKDAKernel"


@pytest.mark.parametrize("order", ["gdn first", "kda first"])
def test_the_per_runner_default_never_enters_the_process_configuration(
    answers: Answers, order: str
) -> None:
    found = answers["side_by_side"][order]
    assert found["leaves changed"] is False
    assert found["process prefill"] is None


@pytest.mark.parametrize("order", ["gdn first", "kda first"])
def test_an_observer_of_server_args_sees_null_where_the_default_chose(
    answers: Answers, order: str
) -> None:
    found = answers["side_by_side"][order]
    assert found["server_args prefill"] is None
    assert found["resolved prefill"] is None


def test_an_explicit_prefill_flag_is_what_the_runner_gets_and_whom_it_names(
    answers: Answers,
) -> None:
    found = answers["prefill_flag_beats_the_default"]
    assert found["stamp"]["prefill"] == "triton"
    assert found["source"]["prefill"] == "flag"


def test_what_sglangs_resolver_declared_is_not_called_a_flag(answers: Answers) -> None:
    assert answers["resolver_declared"]["source"]["decode"] == "resolver"


@pytest.mark.parametrize("backend", ["gdn", "kda", "ascend"])
def test_sglangs_constructors_refuse_an_unstamped_runner_by_the_attribute(
    answers: Answers, backend: str
) -> None:
    said = answers["unstamped_constructors"][backend]
    assert said.startswith("AttributeError")
    assert "linear_attn_backends" in said


@pytest.mark.parametrize("backend", ["lightning", "mamba2", "kda"])
def test_our_guard_refuses_an_unstamped_runner_in_front_of_each_backend(
    answers: Answers, backend: str
) -> None:
    said = answers["guarded_constructors"][backend]
    assert said.startswith("UnstampedRunnerError: runner target:")
    assert "linear_attn_backends" in said


@pytest.mark.parametrize(
    ("family", "backend"),
    [("mamba2", "Mamba2AttnBackend"), ("lightning", "LightningAttentionBackend")],
)
def test_backends_that_read_no_stamp_are_named_and_never_agree(
    answers: Answers, family: str, backend: str
) -> None:
    report = answers["backends_that_read_no_stamp"][family]
    assert report["family"] == family
    assert report["kernels"] == {"backend": backend}
    assert report["agrees"] is None
    assert [d["reason"] for d in report["differences"]] == ["backend_reads_no_stamp"]


def test_a_stamp_is_frozen(answers: Answers) -> None:
    assert answers["frozen_stamp"].startswith("AttributeError: immutable type")


def test_the_report_equals_what_the_constructed_backend_holds(answers: Answers) -> None:
    found = answers["report_and_backend"]
    assert found["report"]["stamp"] == found["held stamp"]
    assert found["report"]["kernels"] == found["held kernels"]


@pytest.mark.parametrize(
    ("algorithm", "runners"),
    [
        ("none", []),
        ("eagle", ["draft"]),
        ("standalone", ["draft"]),
        ("multi_layer_eagle", ["step 0", "step 1"]),
        ("dflash", ["draft"]),
        ("dspark", ["draft"]),
        ("uno", []),
        ("ngram", []),
    ],
)
def test_the_draft_runners_of_every_algorithm_are_found(
    answers: Answers, algorithm: str, runners: list[str]
) -> None:
    assert answers["draft_runners_of_every_algorithm"][algorithm] == runners


def test_every_registered_draft_has_its_targets_loader_hooks_or_a_reviewed_reason(
    answers: Answers,
) -> None:
    found = answers["registry_parity"]
    assert found["pairs"] >= 20
    assert found["broken"] == []
    assert found["exempted"] == ["BailingMoeForCausalLMNextN"]


def test_no_reviewed_exception_is_stale(answers: Answers) -> None:
    assert answers["registry_parity"]["stale"] == []
