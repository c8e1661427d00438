"""Flags choose exactly one worker type; conflicting choices name both flags."""

from __future__ import annotations

import itertools

import pytest
from sglang_worker.config.endpoint import default_endpoint
from sglang_worker.config.worker_config import WorkerType
from sglang_worker.config.worker_types import Selection, decide
from sglang_worker.errors import ConfigError

from tests.unit.config.support import late_refusal, parse, refusal


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", "aggregated"),
        ("--disaggregation-mode null", "aggregated"),
        ("--disaggregation-mode agg", "aggregated"),
        ("--disaggregation-mode pd", "aggregated"),
        ("--disaggregation-mode decode", "decode"),
        ("--disaggregation-mode prefill", "prefill"),
        ("--embedding-worker", "embedding"),
        ("--embedding-worker --enable-multimodal", "embedding"),
        ("--enable-multimodal --disaggregation-mode encode", "multimodal_encode"),
        ("--disaggregation-mode=encode", "multimodal_encode"),
        ("--enable-multimodal", "native_multimodal"),
        ("--enable-multimodal --disaggregation-mode prefill", "native_multimodal_prefill"),
        ("--enable-multimodal --disaggregation-mode decode", "native_multimodal_decode"),
        (
            "--enable-multimodal --dedicated-mm-encoder --disaggregation-mode pd",
            "internal_multimodal",
        ),
        (
            "--enable-multimodal --dedicated-mm-encoder --disaggregation-mode decode",
            "internal_multimodal_decode",
        ),
        (
            "--enable-multimodal --dedicated-mm-encoder --disaggregation-mode prefill",
            "internal_multimodal_prefill",
        ),
        ("--image-diffusion-worker", "image_diffusion"),
        ("--video-generation-worker", "video_generation"),
        ("--dllm-algorithm LowConfidence", "llm_diffusion"),
    ],
)
def test_flags_choose_the_worker_type(flags: str, expected: str) -> None:
    assert parse(*flags.split()).worker_type == expected


@pytest.mark.parametrize(
    ("flags", "both"),
    [
        (
            "--embedding-worker --image-diffusion-worker",
            ["--embedding-worker", "--image-diffusion-worker"],
        ),
        (
            "--image-diffusion-worker --video-generation-worker",
            ["--image-diffusion-worker", "--video-generation-worker"],
        ),
        (
            "--image-diffusion-worker --enable-multimodal",
            ["--image-diffusion-worker", "--enable-multimodal"],
        ),
        ("--dedicated-mm-encoder", ["--dedicated-mm-encoder", "--enable-multimodal"]),
    ],
)
def test_conflicts_of_our_own_flags_are_found_before_sglang_is_imported(
    flags: str, both: list[str]
) -> None:
    text = refusal(*flags.split())
    assert all(name in text for name in both), text


@pytest.mark.parametrize(
    ("flags", "both"),
    [
        (
            "--embedding-worker --disaggregation-mode prefill",
            ["--embedding-worker", "--disaggregation-mode prefill"],
        ),
        ("--embedding-worker --dllm-algorithm X", ["--embedding-worker", "--dllm-algorithm"]),
        (
            "--dllm-algorithm X --disaggregation-mode decode",
            ["--dllm-algorithm", "--disaggregation-mode decode"],
        ),
        (
            "--enable-multimodal --dedicated-mm-encoder",
            ["--dedicated-mm-encoder", "--disaggregation-mode pd"],
        ),
        (
            "--enable-multimodal --dedicated-mm-encoder --disaggregation-mode encode",
            ["--dedicated-mm-encoder", "--disaggregation-mode encode"],
        ),
    ],
)
def test_conflicts_with_the_mode_name_both_flags(flags: str, both: list[str]) -> None:
    text = late_refusal(*flags.split())
    assert all(name in text for name in both), text


def test_a_conflict_set_by_variables_names_the_variables() -> None:
    text = refusal(DYN_SGL_EMBEDDING_WORKER="1", DYN_SGL_VIDEO_GENERATION_WORKER="yes")
    assert "DYN_SGL_EMBEDDING_WORKER" in text and "DYN_SGL_VIDEO_GENERATION_WORKER" in text


def test_every_selection_is_a_type_or_a_clear_refusal() -> None:
    switches = itertools.product([False, True], repeat=5)
    modes = [None, "null", "agg", "pd", "prefill", "decode", "encode"]
    for (embedding, image, video, multimodal, dedicated), mode, dllm in itertools.product(
        switches, modes, [None, "X"]
    ):
        selection = Selection(embedding, image, video, dllm, multimodal, dedicated, mode)
        try:
            assert isinstance(decide(selection), WorkerType)
        except ConfigError as refused:
            assert str(refused).count("--") >= 2


def test_an_unknown_mode_lists_dynamos_modes_too() -> None:
    text = late_refusal("--disaggregation-mode", "epd")
    assert "'epd'" in text and "encode" in text and "pd" in text and "prefill" in text


def test_sglang_never_hears_of_dynamos_own_modes() -> None:
    config = parse("--disaggregation-mode", "pd")
    assert "pd" not in config.engine.argv
    assert config.engine.explicit["disaggregation_mode"] == "null"
    assert parse("--disaggregation-mod=encode").engine.argv == ("--model-path", "org/model")


def test_worker_flags_imply_sglangs() -> None:
    assert parse("--embedding-worker").engine.explicit["is_embedding"] is True
    encode = parse("--disaggregation-mode", "encode")
    assert encode.engine.explicit["encoder_only"] is True
    assert encode.engine.explicit["enable_multimodal"] is True
    assert any("implies --enable-multimodal" in notice for notice in encode.notices)
    assert parse("--enable-multimodal").engine.explicit["enable_multimodal"] is True


@pytest.mark.parametrize(
    ("kind", "component"),
    [
        (WorkerType.AGGREGATED, "backend"),
        (WorkerType.DECODE, "backend"),
        (WorkerType.PREFILL, "prefill"),
        (WorkerType.INTERNAL_MULTIMODAL_PREFILL, "prefill"),
        (WorkerType.NATIVE_MULTIMODAL_PREFILL, "prefill"),
        (WorkerType.MULTIMODAL_ENCODE, "encode"),
        (WorkerType.EMBEDDING, "backend"),
    ],
)
def test_each_type_has_its_default_endpoint(kind: WorkerType, component: str) -> None:
    assert default_endpoint(kind, "ns").path == f"ns.{component}.generate"
