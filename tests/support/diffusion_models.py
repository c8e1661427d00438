"""Diffusers folders with random weights: one Z-Image style pipeline, one Wan style pipeline.

``python tests/support/diffusion_models.py DIR [tiny|wide]`` writes both. Needs torch, transformers
and diffusers; nothing is downloaded, weights are drawn from a fixed seed. SGLang finds its own
pipeline for a folder by the folder's name, so the names are those of published models.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from sglang_worker.demo.vocabulary import PAD_ID, TOKENIZER_FILE, VOCABULARY_SIZE, tokenizer_config

SEED = 20_261_130
DIFFUSERS_VERSION = "0.37.0"
NAMES = {"image": "Z-Image-Turbo", "video": "Wan2.1-T2V-1.3B-Diffusers"}


class Size(msgspec.Struct, frozen=True):
    """Widths and depths. ``axes`` are the rotary parts of one head of the image transformer."""

    text_width: int
    head_width: int
    axes: tuple[int, int, int]
    image_heads: int
    video_heads: int
    layers: int
    video_inner: int
    image_vae: tuple[int, ...]
    video_vae: int


SIZES = {
    "tiny": Size(64, 64, (16, 24, 24), 2, 2, 2, 256, (32, 32, 32, 32), 16),
    "wide": Size(512, 128, (32, 48, 48), 12, 12, 6, 8960, (128, 256, 512, 512), 96),
}


def write_models(folder: Path, size: str = "tiny") -> dict[str, Path]:
    """``{"image": …, "video": …}``; existing folders are left as they are."""
    made: dict[str, Callable[[Path, Size], None]] = {"image": write_image, "video": write_video}
    paths = {}
    for kind, write in made.items():
        paths[kind] = folder / NAMES[kind]
        if not (paths[kind] / "model_index.json").exists():
            write(paths[kind], SIZES[size])
    return paths


def write_image(folder: Path, size: Size) -> None:
    """Z-Image's shape: Qwen3 text encoder, single-stream transformer, Flux's VAE."""
    import torch
    from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, ZImageTransformer2DModel
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(SEED)
    save(Qwen3Model(Qwen3Config(**qwen3(size))), folder / "text_encoder")
    transformer = ZImageTransformer2DModel(
        dim=size.image_heads * size.head_width,
        n_layers=size.layers,
        n_refiner_layers=1,
        n_heads=size.image_heads,
        n_kv_heads=size.image_heads,
        cap_feat_dim=size.text_width,
        axes_dims=list(size.axes),
        axes_lens=[1024, 512, 512],
    )
    # SGLang reads the same facts under other names.
    names = {"num_layers": size.layers, "num_attention_heads": size.image_heads}
    save(transformer, folder / "transformer", **names)
    save(image_vae(AutoencoderKL, size), folder / "vae")
    FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=False).save_pretrained(
        folder / "scheduler"
    )
    write_tokenizer(folder / "tokenizer")
    write_index(
        folder,
        "ZImagePipeline",
        text_encoder=("transformers", "Qwen3Model"),
        tokenizer=("transformers", "PreTrainedTokenizerFast"),
        transformer=("diffusers", "ZImageTransformer2DModel"),
        vae=("diffusers", "AutoencoderKL"),
        scheduler=("diffusers", "FlowMatchEulerDiscreteScheduler"),
    )


def write_video(folder: Path, size: Size) -> None:
    """Wan's shape: UMT5 text encoder, 3D transformer, causal video VAE."""
    import torch
    from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanTransformer3DModel
    from transformers import UMT5Config, UMT5EncoderModel

    torch.manual_seed(SEED + 1)
    save(UMT5EncoderModel(UMT5Config(**umt5(size))), folder / "text_encoder")
    transformer = WanTransformer3DModel(
        num_attention_heads=size.video_heads,
        attention_head_dim=size.head_width,
        text_dim=size.text_width,
        ffn_dim=size.video_inner,
        num_layers=size.layers,
    )
    save(transformer, folder / "transformer")
    save(AutoencoderKLWan(base_dim=size.video_vae, z_dim=16, num_res_blocks=1), folder / "vae")
    UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
    ).save_pretrained(folder / "scheduler")
    write_tokenizer(folder / "tokenizer")
    write_index(
        folder,
        "WanPipeline",
        text_encoder=("transformers", "UMT5EncoderModel"),
        tokenizer=("transformers", "PreTrainedTokenizerFast"),
        transformer=("diffusers", "WanTransformer3DModel"),
        vae=("diffusers", "AutoencoderKLWan"),
        scheduler=("diffusers", "UniPCMultistepScheduler"),
    )


def image_vae(kind: Any, size: Size) -> Any:
    return kind(
        block_out_channels=list(size.image_vae),
        down_block_types=["DownEncoderBlock2D"] * 4,
        up_block_types=["UpDecoderBlock2D"] * 4,
        layers_per_block=1,
        latent_channels=16,
        norm_num_groups=8,
        scaling_factor=0.3611,
        shift_factor=0.1159,
        use_quant_conv=False,
        use_post_quant_conv=False,
        force_upcast=False,
    )


def qwen3(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": size.text_width,
        "intermediate_size": 2 * size.text_width,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": size.head_width,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "pad_token_id": PAD_ID,
    }


def umt5(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY_SIZE,
        "d_model": size.text_width,
        "d_kv": 32,
        "d_ff": 2 * size.text_width,
        "num_layers": 2,
        "num_heads": 2,
        "feed_forward_proj": "gated-gelu",
        "pad_token_id": PAD_ID,
    }


def save(model: Any, folder: Path, **also: Any) -> None:
    """``also``: further keys of config.json."""
    model.eval().save_pretrained(folder)
    if also:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | also, indent=2))


def write_tokenizer(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(TOKENIZER_FILE.read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(512)))


def write_index(folder: Path, pipeline: str, **components: tuple[str, str]) -> None:
    index: dict[str, Any] = {"_class_name": pipeline, "_diffusers_version": DIFFUSERS_VERSION}
    index |= {name: list(where) for name, where in components.items()}
    (folder / "model_index.json").write_text(json.dumps(index, indent=2))


if __name__ == "__main__":
    for kind, path in write_models(Path(sys.argv[1]), *sys.argv[2:3]).items():
        print(f"{kind}: {path}")
