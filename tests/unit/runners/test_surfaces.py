from __future__ import annotations

from sglang_worker.observability.metrics.exposition import Exposition
from sglang_worker.observability.metrics.sources import RunnerSource
from sglang_worker.runners import gauge, table
from sglang_worker.runners.report import Difference, Reason, Stamp

from tests.unit.runners.builders import KERNELS, report

CUTEDSL = report(
    stamp=Stamp("cutedsl", "cutedsl", "triton"),
    kernels={**KERNELS, "decode": "CuteDSLGDNKernel"},
    agrees=False,
    differences=(
        Difference("prefill", "cutedsl", "TritonGDNKernel", Reason.UNSUPPORTED_ON_DEVICE),
    ),
)
DENSE = report(
    runner="draft",
    model="Qwen3ForCausalLM",
    family=None,
    stamp=None,
    source=None,
    kernels=None,
    agrees=None,
)


def test_the_table_has_a_line_per_phase_of_a_linear_runner() -> None:
    lines = table.lines([CUTEDSL])
    assert len(lines) == 1 + 4
    assert lines[0].split()[:2] == ["runner", "model"]
    assert "Qwen3NextForCausalLM" in lines[1]
    assert any("prefill" in line and "TritonGDNKernel" in line for line in lines)


def test_a_runner_without_linear_attention_takes_one_line() -> None:
    assert len(table.lines([DENSE])) == 2
    assert "no linear attention" in table.lines([DENSE])[1]
    assert "triton/triton" in table.lines([DENSE])[1]


def test_each_difference_is_a_sentence_with_its_reason() -> None:
    (line,) = table.difference_lines([CUTEDSL, DENSE])
    assert "prefill is stamped cutedsl but runs TritonGDNKernel" in line
    assert "unsupported_on_device" in line


def test_every_reason_has_an_explanation() -> None:
    for reason in Reason:
        difference = Difference("prefill", "triton", "K", reason)
        assert reason.value in table.difference_lines([report(differences=(difference,))])[0]


def test_the_gauge_has_one_sample_of_value_one_per_phase() -> None:
    text = Exposition({"runners": RunnerSource(lambda: [CUTEDSL])}).text()
    assert (
        'dynamo_sglang_linear_attn_runner_info{family="gdn",kernel="TritonGDNKernel",'
        'model="Qwen3NextForCausalLM",phase="prefill",runner="target",source="base",'
        'stamp="cutedsl"} 1.0' in text
    )
    assert text.count("dynamo_sglang_linear_attn_runner_info{") == 4


def test_null_is_the_empty_label() -> None:
    assert gauge.label_values([DENSE])[0] == (
        "draft",
        "Qwen3ForCausalLM",
        "",
        "decode",
        "",
        "",
        "",
    )
