from __future__ import annotations

import logging

import pytest
from sglang_worker.errors import StartupCheckError
from sglang_worker.runners import startup
from sglang_worker.runners.fusion import COUNT, GATE, LoaderAnswers
from sglang_worker.runners.report import FusionDecision, Stamp
from sglang_worker.runners.startup import Collected, verify

from tests.unit.runners.builders import KERNELS, by_rank, rank_record, runner

OTHER = Stamp("triton", "flashinfer", "triton")


def refused(collected: Collected) -> str:
    with pytest.raises(StartupCheckError) as caught:
        verify(collected, strict=True)
    return str(caught.value)


def test_two_ranks_that_agree_share_one_report() -> None:
    collected = Collected(by_rank(rank_record(0), rank_record(1)), (0, 1))
    (merged,) = verify(collected, strict=True)
    assert merged.ranks == (0, 1)
    assert merged.report_valid


def test_a_rank_without_a_report_stops_startup_by_its_number() -> None:
    message = refused(Collected(by_rank(rank_record(0)), (0, 1)))
    assert "rank 1 handed over no runner report" in message
    assert "--no-runner-report-strict" in message


def test_a_record_that_names_no_runner_stops_startup() -> None:
    record = rank_record(0)
    empty = type(record)(record.identity)
    assert "names no runner" in refused(Collected({0: empty}, (0,)))


def test_ranks_that_disagree_are_named_with_runner_and_field() -> None:
    records = by_rank(rank_record(0), rank_record(1, runner(1, stamp=OTHER)))
    message = refused(Collected(records, (0, 1)))
    assert "runner target: ranks disagree on stamp" in message
    assert "rank 0 has" in message
    assert "rank 1 has" in message


def test_a_backend_without_a_stamp_stops_startup() -> None:
    message = refused(Collected(by_rank(rank_record(0, runner(stamp=None, source=None))), (0,)))
    assert "runner target, rank 0: GDNAttnBackend was built, yet field stamp is missing" in message


def test_a_short_convolution_backend_may_come_before_the_stamp() -> None:
    built = runner(stamp=None, source=None, family="short_conv", kernels={"backend": "B"})
    assert verify(Collected(by_rank(rank_record(0, built)), (0,)), strict=True)


def test_a_childs_own_complaint_stops_startup() -> None:
    record = rank_record(0, errors=("the report could not be collected",))
    assert "rank 0: the report could not be collected" in refused(Collected({0: record}, (0,)))


def test_a_pipeline_stage_without_linear_layers_is_no_disagreement() -> None:
    softmax_only = runner(1, kernels=None, agrees=None)
    records = by_rank(rank_record(0), rank_record(1, softmax_only, pp=1))
    (merged,) = verify(Collected(records, (0, 1)), strict=True)
    assert merged.ranks == (0, 1)
    assert merged.kernels == KERNELS


def test_ranks_of_one_stage_must_agree_on_having_a_backend() -> None:
    records = by_rank(rank_record(0), rank_record(1, runner(1, kernels=None, agrees=None)))
    assert "ranks disagree on kernels" in refused(Collected(records, (0, 1)))


def test_a_draft_on_the_last_stage_alone_is_fine() -> None:
    draft = runner(1, runner="draft", kernels=None, agrees=None)
    records = by_rank(rank_record(0), rank_record(1, runner(1), draft, pp=1))
    target, last = verify(Collected(records, (0, 1)), strict=True)
    assert target.ranks == (0, 1)
    assert last.ranks == (1,)


def test_without_strictness_the_worker_starts_and_the_report_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    records = by_rank(rank_record(0), rank_record(1, runner(1, stamp=OTHER)))
    with caplog.at_level(logging.WARNING):
        reports = verify(Collected(records, (0, 1)), strict=False)
    assert [r.report_valid for r in reports] == [False, False]
    assert [r.ranks for r in reports] == [(0,), (1,)]
    assert "ranks disagree on stamp" in caplog.text
    assert "allowed by --no-runner-report-strict" in caplog.text


def test_a_missing_rank_makes_every_runner_invalid_without_strictness() -> None:
    reports = verify(Collected(by_rank(rank_record(0)), (0, 1)), strict=False)
    assert [r.report_valid for r in reports] == [False]


def test_a_failure_of_one_runner_leaves_the_others_valid() -> None:
    records = by_rank(rank_record(0, runner(0), runner(0, runner="draft", stamp=None, source=None)))
    target, draft = verify(Collected(records, (0,)), strict=False)
    assert target.report_valid
    assert not draft.report_valid


BOTH = (GATE, COUNT)


def pair(
    target: LoaderAnswers, draft: LoaderAnswers, *, fused: tuple[bool, bool] = (False, False)
) -> Collected:
    reason = "because"
    record = rank_record(
        0,
        runner(
            model=target.model,
            loader=target,
            shared_experts_fusion=FusionDecision(fused[0], reason),
        ),
        runner(
            runner="draft",
            model=draft.model,
            loader=draft,
            shared_experts_fusion=FusionDecision(fused[1], reason),
        ),
    )
    return Collected({0: record}, (0,))


def test_a_loader_hook_on_the_draft_alone_stops_startup() -> None:
    message = refused(pair(LoaderAnswers("X"), LoaderAnswers("XMTP", hooks=(GATE,))))
    assert f"runner draft, rank 0: loader hook {GATE}: XMTP has it, X lacks it" in message


def test_a_loader_hook_on_the_target_alone_stops_startup() -> None:
    message = refused(pair(LoaderAnswers("X", hooks=(COUNT,)), LoaderAnswers("XNextN")))
    assert f"loader hook {COUNT}: X has it, XNextN lacks it" in message


def test_an_independent_dense_draft_is_not_a_pair() -> None:
    assert verify(pair(LoaderAnswers("X", hooks=BOTH), LoaderAnswers("Y")), strict=True)


def test_a_reviewed_exception_starts_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    collected = pair(
        LoaderAnswers("BailingMoeForCausalLM"),
        LoaderAnswers("BailingMoeForCausalLMNextN", hooks=BOTH),
    )
    with caplog.at_level(logging.WARNING):
        assert verify(collected, strict=True)
    assert "reviewed exception" in caplog.text


def answers(model: str, fusable: int) -> LoaderAnswers:
    return LoaderAnswers(model, hooks=BOTH, fusable=fusable)


def test_equal_questions_with_different_decisions_stop_startup() -> None:
    collected = pair(answers("X", 1), answers("XMTP", 1), fused=(True, False))
    assert "shared-experts fusion is decided differently" in refused(collected)


def test_a_different_fusable_count_explains_a_different_decision(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert verify(pair(answers("X", 1), answers("XMTP", 0), fused=(True, False)), strict=True)
    assert "decided differently" in caplog.text


def test_the_reason_of_a_schedulers_death_is_what_the_hooks_left(tmp_path) -> None:
    environ: dict[str, str] = {}
    folder = startup.prepare(environ, strict=True)
    try:
        assert startup.reason_of_death(folder) is None
        folder.write(rank_record(0, errors=("the hooks did not apply",)))
        assert startup.reason_of_death(folder) == "the hooks did not apply"
    finally:
        folder.remove()
