"""Trained models to the committed float16 files, in the tensor names that SGLang reads."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from sglang_worker.demo.checkpoints import WEIGHTS_FOLDER
from sglang_worker.demo.configs import GDN


def export_model(name: str, model: Any) -> str:
    """Write ``weights/<name>.safetensors``; returns a line with the number of weights and size.

    ``save_pretrained`` undoes the library's fusing of experts, so names are those of a
    published checkpoint. Kimi-Linear's feed-forward layers carry another prefix in SGLang.
    """
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(Path(folder) / "model.safetensors")
    if name == "kda":
        tensors = {k.replace("block_sparse_moe.", "mlp."): v for k, v in tensors.items()}
    return write_float16(name, tensors)


def write_float16(name: str, tensors: dict[str, np.ndarray]) -> str:
    path = WEIGHTS_FOLDER / f"{name}.safetensors"
    half = {key: tensors[key].astype(np.float16) for key in sorted(tensors)}
    for key, value in half.items():
        if not np.isfinite(value).all():
            raise ValueError(f"{name}: {key} does not fit float16")
    WEIGHTS_FOLDER.mkdir(exist_ok=True)
    save_file(half, path, metadata={"format": "pt"})
    path.chmod(0o644)
    count = sum(value.size for value in half.values())
    return f"{path.name}: {count} weights, {path.stat().st_size / 1e6:.2f} MB"


def load_target() -> Any:
    """Return the committed GDN target as a Hugging Face model (its MTP weights are ignored)."""
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(GDN))
        shutil.copyfile(WEIGHTS_FOLDER / "gdn.safetensors", Path(folder) / "model.safetensors")
        return AutoModelForCausalLM.from_pretrained(folder, dtype="float32")


def export_mtp(head: Any) -> str:
    """Write ``weights/mtp.safetensors`` from a trained ``MtpHead``.

    Expert tensors are kept fused in the library ([experts, 2*inner, hidden]); a checkpoint has
    one gate, up and down projection per expert.
    """
    tensors: dict[str, np.ndarray] = {}
    for name, value in head.state_dict().items():
        array = value.detach().cpu().numpy()
        in_layer = name.startswith("layer.")
        key = f"mtp.layers.0.{name.removeprefix('layer.')}" if in_layer else f"mtp.{name}"
        if name.endswith("experts.gate_up_proj"):
            for index, both in enumerate(array):
                gate, up = np.split(both, 2)
                stem = key.removesuffix("gate_up_proj")
                tensors[f"{stem}{index}.gate_proj.weight"] = gate
                tensors[f"{stem}{index}.up_proj.weight"] = up
        elif name.endswith("experts.down_proj"):
            for index, down in enumerate(array):
                stem = key.removesuffix("down_proj")
                tensors[f"{stem}{index}.down_proj.weight"] = down
        else:
            tensors[key] = array
    return write_float16("mtp", tensors)
