"""Precision of a pipeline's components on a CPU without bf16 arithmetic."""

from __future__ import annotations

from types import SimpleNamespace

from sglang_worker.engine import compat_diffusion


def test_every_component_is_widened_and_named() -> None:
    pipeline = SimpleNamespace(
        precision="bf16",
        vae_precision="fp32",
        vae_decode_precision="fp16",
        text_encoder_precisions=("bf16", "fp32"),
        image_encoder_precision=None,
        flow_shift=3.0,
    )
    assert compat_diffusion.widen(pipeline) == [
        "precision",
        "vae_decode_precision",
        "text_encoder_precisions",
    ]
    assert pipeline == SimpleNamespace(
        precision="fp32",
        vae_precision="fp32",
        vae_decode_precision="fp32",
        text_encoder_precisions=("fp32", "fp32"),
        image_encoder_precision=None,
        flow_shift=3.0,
    )


def test_sglangs_pipelines_name_their_precisions_so() -> None:
    from sglang.multimodal_gen.configs.pipeline_configs.zimage import ZImagePipelineConfig

    assert "vae_precision" in compat_diffusion.widen(ZImagePipelineConfig())
