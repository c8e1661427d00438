"""Which flags fit an image or video worker, and what the generator is told."""

from __future__ import annotations

import pytest
from sglang_worker.config.diffusion_flags import check_flags, generator_arguments
from sglang_worker.config.parse import parse_worker_config
from sglang_worker.config.worker_config import WorkerType
from sglang_worker.errors import ConfigError

IMAGES, VIDEOS = WorkerType.IMAGE_DIFFUSION, WorkerType.VIDEO_GENERATION


def test_a_plain_image_worker_parses() -> None:
    config = parse_worker_config(["--model-path", "org/name", "--image-diffusion-worker"], {})
    assert config.worker_type is IMAGES
    assert config.dynamo["media_output_fs_url"].startswith("file://")


def test_other_worker_types_pass() -> None:
    check_flags(WorkerType.AGGREGATED, {"mem_fraction_static": 0.5}, {}, None)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--mem-fraction-static", "0.5"], "--mem-fraction-static is refused with --image-diff"),
        (["--attention-backend", "triton"], "--attention-backend triton is refused"),
        (["--use-sglang-tokenizer"], "--use-sglang-tokenizer is refused with --image-diff"),
        (["--frontend-decoding"], "--frontend-decoding is refused with --image-diffusion"),
        (["--dyn-reasoning-parser", "qwen3"], "--dyn-reasoning-parser is refused"),
        (["--endpoint-types", "chat"], "--endpoint-types is refused"),
        (["--output-modalities", "video"], "--output-modalities is refused"),
        (["--kv-events-config", "{}"], "--kv-events-config is refused"),
        (["--video-generation-worker"], "choose different worker types"),
        (["--disaggregation-mode", "prefill"], "choose different worker types"),
        (["--embedding-worker"], "choose different worker types"),
        (["--enable-multimodal"], "choose different worker types"),
    ],
)
def test_a_flag_about_text_is_refused_by_name(argv: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_worker_config(["--model-path", "org/name", "--image-diffusion-worker", *argv], {})
    assert said in str(refused.value)


def test_a_variable_is_named_as_it_was_given() -> None:
    environ = {"DYN_SGL_USE_TOKENIZER": "true"}
    with pytest.raises(ConfigError, match="DYN_SGL_USE_TOKENIZER is refused with --video-gen"):
        parse_worker_config(["--model-path", "org/name", "--video-generation-worker"], environ)


def test_the_matching_modality_is_accepted() -> None:
    check_flags(VIDEOS, {}, {"output_modalities": "--output-modalities"}, ["VIDEO"])


def test_the_generator_gets_one_gpu_per_rank_and_its_own_names() -> None:
    explicit = {
        "model_path": "org/name",
        "served_model_name": "x",
        "tp_size": 2,
        "dp_size": 2,
        "nccl_port": 31000,
        "attention_backend": "torch_native",
    }
    assert generator_arguments(explicit) == {
        "model_path": "org/name",
        "tp_size": 2,
        "dp_size": 2,
        "master_port": 31000,
        "attention_backend": "torch_sdpa",
        "num_gpus": 4,
        "sleep_on_idle": True,
    }
