"""Diffusers folders with random weights of pipelines that take an image: one of FLUX.2 klein's
shape, which may have one, and one of Wan 2.1's image-to-video, which needs one.

``python -m tests.support.image_taking_models DIR`` writes both; otherwise as `diffusion_models`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.diffusion_models import (
    SEED,
    SIZES,
    Size,
    qwen3,
    save,
    umt5,
    write_index,
    write_tokenizer,
)

NAMES = {"editor": "FLUX.2-klein-4B", "animator": "Wan2.1-I2V-14B-480P-Diffusers"}
# SGLang takes the prompt from the outputs of these layers of the text encoder, side by side.
TEXT_LAYERS = (9, 18, 27)
LATENTS = 32
# The image encoder of Wan has 16 x 16 patches and one token more; SGLang counts on it.
SIDE_PIXELS, PATCH_PIXELS = 224, 14


def write_image_taking_models(folder: Path) -> dict[str, Path]:
    """``{"editor": …, "animator": …}``; existing folders are left as they are."""
    paths = {}
    for kind, write in {"editor": write_editor, "animator": write_animator}.items():
        paths[kind] = folder / NAMES[kind]
        if not (paths[kind] / "model_index.json").exists():
            write(paths[kind], SIZES["tiny"])
    return paths


def write_editor(folder: Path, size: Size) -> None:
    """FLUX.2 klein's shape: Qwen3 text encoder, double- and single-stream transformer."""
    import torch
    from diffusers import (
        AutoencoderKLFlux2,
        FlowMatchEulerDiscreteScheduler,
        Flux2Transformer2DModel,
    )
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(SEED + 2)
    text = Qwen3Config(**{**qwen3(size), "num_hidden_layers": TEXT_LAYERS[-1] + 1})
    save(Qwen3ForCausalLM(text), folder / "text_encoder")
    transformer = Flux2Transformer2DModel(
        # Latents are folded, two by two.
        in_channels=4 * LATENTS,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=size.head_width,
        num_attention_heads=size.image_heads,
        joint_attention_dim=len(TEXT_LAYERS) * size.text_width,
        axes_dims_rope=(size.head_width // 4,) * 4,
        guidance_embeds=False,
    )
    save(transformer, folder / "transformer")
    vae = AutoencoderKLFlux2(
        block_out_channels=size.image_vae,
        layers_per_block=1,
        latent_channels=LATENTS,
        norm_num_groups=8,
        force_upcast=False,
    )
    save(vae, folder / "vae")
    FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True).save_pretrained(
        folder / "scheduler"
    )
    write_tokenizer(folder / "tokenizer")
    write_index(
        folder,
        "Flux2KleinPipeline",
        text_encoder=("transformers", "Qwen3ForCausalLM"),
        tokenizer=("transformers", "PreTrainedTokenizerFast"),
        transformer=("diffusers", "Flux2Transformer2DModel"),
        vae=("diffusers", "AutoencoderKLFlux2"),
        scheduler=("diffusers", "FlowMatchEulerDiscreteScheduler"),
    )


def write_animator(folder: Path, size: Size) -> None:
    """Wan 2.1's image-to-video shape: as its text-to-video, and a CLIP image encoder."""
    import torch
    from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanTransformer3DModel
    from transformers import (
        CLIPImageProcessor,
        CLIPVisionConfig,
        CLIPVisionModel,
        UMT5Config,
        UMT5EncoderModel,
    )

    torch.manual_seed(SEED + 3)
    save(UMT5EncoderModel(UMT5Config(**umt5(size))), folder / "text_encoder")
    eyes = CLIPVisionConfig(
        hidden_size=size.text_width,
        intermediate_size=2 * size.text_width,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=SIDE_PIXELS,
        patch_size=PATCH_PIXELS,
    )
    save(CLIPVisionModel(eyes), folder / "image_encoder")
    _name_as_published(folder / "image_encoder" / "model.safetensors", "vision_model.")
    CLIPImageProcessor(size=SIDE_PIXELS, crop_size=SIDE_PIXELS).save_pretrained(
        folder / "image_processor"
    )
    width = size.video_heads * size.head_width
    transformer = WanTransformer3DModel(
        num_attention_heads=size.video_heads,
        attention_head_dim=size.head_width,
        # The noise, the image as latents, and which frames those are.
        in_channels=16 + 16 + 4,
        text_dim=size.text_width,
        ffn_dim=size.video_inner,
        num_layers=size.layers,
        image_dim=size.text_width,
        added_kv_proj_dim=width,
    )
    save(transformer, folder / "transformer")
    save(AutoencoderKLWan(base_dim=size.video_vae, z_dim=16, num_res_blocks=1), folder / "vae")
    UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
    ).save_pretrained(folder / "scheduler")
    write_tokenizer(folder / "tokenizer")
    write_index(
        folder,
        "WanImageToVideoPipeline",
        text_encoder=("transformers", "UMT5EncoderModel"),
        tokenizer=("transformers", "PreTrainedTokenizerFast"),
        image_encoder=("transformers", "CLIPVisionModel"),
        image_processor=("transformers", "CLIPImageProcessor"),
        transformer=("diffusers", "WanTransformer3DModel"),
        vae=("diffusers", "AutoencoderKLWan"),
        scheduler=("diffusers", "UniPCMultistepScheduler"),
    )


def _name_as_published(path: Path, prefix: str) -> None:
    """Under the names of published checkpoints, which newer transformers shortens."""
    from safetensors.torch import load_file, save_file

    weights = load_file(path)
    save_file(
        {prefix + name.removeprefix(prefix): value for name, value in weights.items()},
        path,
        metadata={"format": "pt"},
    )


if __name__ == "__main__":
    for kind, path in write_image_taking_models(Path(sys.argv[1])).items():
        print(f"{kind}: {path}")
