"""Results as JSON and as a table."""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "sglang", "diffusers", "transformers", "ai-dynamo-runtime")


def machine() -> dict[str, str]:
    import torch

    given = [Path(one).name if one.startswith("/") else one for one in sys.argv[1:]]
    command = " ".join(["python -m", f"benchmarks.{Path(sys.argv[0]).stem}", *given])
    found = {"python": platform.python_version(), "command": command}
    found["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed as a package"
    return found


def fault(part: str, error: str, trace: str) -> dict[str, str]:
    return {"part": part, "error": error, "trace": trace}


def write(path: Path, found: dict[str, Any]) -> None:
    path.write_text(json.dumps(found, indent=1))
    path.with_suffix(".md").write_text(table(found))


def table(found: dict[str, Any]) -> str:
    lines = ["# Image and video workers on a GPU", ""]
    lines += [", ".join(f"{name} {value}" for name, value in found["machine"].items()), ""]
    lines += ["| what | seconds (median) | least, most | more |", "| --- | --- | --- | --- |"]
    for row in found["rows"]:
        more = {k: v for k, v in row.items() if k not in ("what", "s", "spread_s")}
        spread = " to ".join(f"{value:g}" for value in row.get("spread_s", ()))
        text = ", ".join(f"{name} {value}" for name, value in more.items())
        lines.append(f"| {row['what']} | {row['s']:g} | {spread} | {text} |")
    lines += ["", *(f"Failed: {one['part']}: {one['error'][:200]}" for one in found["faults"])]
    return "\n".join(lines) + "\n"
