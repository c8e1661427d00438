"""The demo's tokenizer beside weights that were drawn: all its ids fit."""

from __future__ import annotations

import shutil
from pathlib import Path

from sglang_worker.demo.checkpoints import ensure

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
)


def add_tokenizer(model: Path, scratch: Path) -> Path:
    """Copies it into ``model``; ``scratch`` is where the demo's checkpoint may be made."""
    demo = ensure(scratch / "demo", ["gdn"])["gdn"]
    for name in FILES:
        shutil.copy(demo / name, model)
    return model
