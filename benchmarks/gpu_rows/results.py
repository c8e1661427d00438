"""Result files: whole or not at all, and an error where a row left none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_whole(path: Path, value: Any, *, indent: int | None = None, label: str = "") -> None:
    """A reader sees the old content or the new. ``label`` keeps writers of one file apart."""
    part = path.with_suffix(f"{'.' + label if label else ''}.part")
    part.write_text(json.dumps(value, default=str, indent=indent))
    part.replace(path)


def read_row(name: str, output: Path) -> dict[str, Any]:
    """What a row wrote; an ``error`` when that is nothing, or no JSON."""
    try:
        found: dict[str, Any] = json.loads(output.read_text())
    except (OSError, ValueError) as error:
        return {"row": name, "error": f"no result was written: {error}"}
    return found
