"""Write the demo checkpoints: ``python -m sglang_worker.demo.checkpoints DIR [names…]``.

Seconds, no download, always the same bytes: the committed float16 weights are expanded to
float32 (what the CPU reference platform computes in), the others are drawn from a fixed seed.
Imports numpy and safetensors only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from safetensors.numpy import load_file, save_file

from sglang_worker.demo import configs
from sglang_worker.demo.generated import dllm_tensors, vlm_tensors
from sglang_worker.demo.vocabulary import (
    CHAT_TEMPLATE_FILE,
    END_OF_TURN_ID,
    PAD_ID,
    TOKENIZER_FILE,
    tokenizer_config,
)
from sglang_worker.errors import ConfigError

Tensors = dict[str, np.ndarray]
WEIGHTS_FOLDER: Final = Path(__file__).with_name("weights")
MARKER: Final = "demo-checkpoint.json"
"""Written last; holds the fingerprint that makes a second call do nothing."""


class Recipe(msgspec.Struct, frozen=True):
    """How one checkpoint is made: its configuration, where weights come from, extra files."""

    config: Mapping[str, Any]
    committed: tuple[str, ...] = ()
    generate: Callable[[], Tensors] | None = None
    extra_files: Mapping[str, Mapping[str, Any]] = {}

    def tensors(self) -> Tensors:
        """Return the weights as float32."""
        found: Tensors = {} if self.generate is None else self.generate()
        for stem in self.committed:
            found |= load_file(WEIGHTS_FOLDER / f"{stem}.safetensors")
        return {name: found[name].astype(np.float32) for name in sorted(found)}

    def fingerprint(self) -> str:
        """Hash everything that decides the written bytes, the code of this folder included."""
        digest = hashlib.sha256(json.dumps([self.config, self.extra_files]).encode())
        sources = [Path(__file__), *(Path(__file__).with_name(f) for f in ("generated.py",))]
        weights = [WEIGHTS_FOLDER / f"{stem}.safetensors" for stem in self.committed]
        for path in (*sources, *weights, TOKENIZER_FILE, CHAT_TEMPLATE_FILE):
            digest.update(path.read_bytes())
        return digest.hexdigest()


RECIPES: Final[Mapping[str, Recipe]] = {
    "gdn": Recipe(configs.GDN, committed=("gdn", "mtp")),
    "dense": Recipe(configs.DENSE, committed=("dense",)),
    "kda": Recipe(configs.KDA, committed=("kda",)),
    "embedding": Recipe(configs.DENSE, committed=("dense",)),
    "vlm": Recipe(
        configs.VLM,
        generate=vlm_tensors,
        extra_files={"preprocessor_config.json": configs.VLM_PREPROCESSOR},
    ),
    "dllm": Recipe(configs.DLLM, generate=dllm_tensors),
}
NAMES: Final = tuple(RECIPES)


def ensure(directory: str | os.PathLike[str], names: Iterable[str] = NAMES) -> dict[str, Path]:
    """Make the named checkpoints under ``directory`` unless they are there already.

    Safe against an interrupted or a second concurrent call: a folder appears complete or not
    at all. Raises ConfigError for an unknown name.
    """
    root = Path(directory)
    paths: dict[str, Path] = {}
    for name in names:
        if name not in RECIPES:
            raise ConfigError(f"no demo checkpoint is called {name!r}; known: {', '.join(NAMES)}")
        paths[name] = root / name
    root.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        _ensure_one(RECIPES[name], path)
    return paths


def _ensure_one(recipe: Recipe, path: Path) -> None:
    fingerprint = recipe.fingerprint()
    if _is_complete(path, fingerprint):
        return
    building = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        _write(recipe, building)
        _write_json(building / MARKER, {"fingerprint": fingerprint})
        building.chmod(0o755)
        _put_in_place(building, path, fingerprint)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _is_complete(path: Path, fingerprint: str) -> bool:
    try:
        return bool(json.loads((path / MARKER).read_text())["fingerprint"] == fingerprint)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _put_in_place(building: Path, path: Path, fingerprint: str) -> None:
    # Only this project's own folder is ever replaced; a folder without the marker is someone's.
    if path.exists() and not (path / MARKER).exists() and any(path.iterdir()):
        raise ConfigError(f"{path} exists and is no demo checkpoint; choose another folder")
    stale = Path(tempfile.mkdtemp(prefix=f".{path.name}-stale-", dir=path.parent))
    try:
        if path.exists():
            path.rename(stale / path.name)
        building.rename(path)
    except OSError:
        # Another process put the same checkpoint there between the two renames.
        if not _is_complete(path, fingerprint):
            raise
    finally:
        shutil.rmtree(stale, ignore_errors=True)


def _write(recipe: Recipe, folder: Path) -> None:
    context_length = recipe.config.get("max_position_embeddings", 2048)
    _write_json(folder / "config.json", recipe.config)
    _write_json(folder / "tokenizer_config.json", tokenizer_config(context_length))
    _write_json(
        folder / "generation_config.json",
        {"eos_token_id": [END_OF_TURN_ID, PAD_ID], "pad_token_id": PAD_ID},
    )
    for name, content in recipe.extra_files.items():
        _write_json(folder / name, content)
    shutil.copyfile(TOKENIZER_FILE, folder / "tokenizer.json")
    shutil.copyfile(CHAT_TEMPLATE_FILE, folder / "chat_template.jinja")
    save_file(recipe.tensors(), folder / "model.safetensors", metadata={"format": "pt"})


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sglang_worker.demo.checkpoints",
        description="Write the small demo checkpoints.",
    )
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument("names", nargs="*", metavar="name", help=f"default: all of {NAMES}")
    options = parser.parse_args(argv)
    try:
        paths = ensure(options.directory, options.names or NAMES)
    except (ConfigError, OSError) as error:
        print(f"demo checkpoints: {error}", file=sys.stderr)
        return 2
    for path in paths.values():
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
