"""Resolves requirements/sources.toml anew and writes the locks (``make relock``).

Versions that a lock already names are kept where they still fit; ``--upgrade`` lets them move.
Needs the package registry; installs nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from email.parser import Parser
from pathlib import Path
from typing import Any

import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
NOTE = "Installed with 'pip install --no-deps -r'; made by requirements/relock.py."
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]


def read_lock(path: Path) -> dict[str, str]:
    """Canonical name -> ``Name==version`` line."""
    lines = path.read_text().splitlines() if path.exists() else []
    pins = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return {canonicalize_name(pin.split("==")[0]): pin for pin in pins}


def declared_requirements(pin: str, folder: Path) -> list[str]:
    """The Requires-Dist of one wheel that hold on this machine, extras of the wheel left out."""
    command = [*PIP, "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder), pin]
    subprocess.run(command, check=True)
    name = canonicalize_name(pin.split("==")[0]).replace("-", "_")
    wheel = next(folder.glob(f"{name}-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        member = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(member).decode())
    wanted = [Requirement(text) for text in fields.get_all("Requires-Dist", [])]
    return [str(one) for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]


def resolve(requirements: Iterable[str], constraints: Iterable[str], folder: Path) -> list[str]:
    """What pip would install into an empty environment, as ``Name==version`` lines."""
    wanted, limits, report = (folder / name for name in ("in.txt", "limits.txt", "report.json"))
    wanted.write_text("\n".join(requirements))
    limits.write_text("\n".join(constraints))
    command = [*PIP, "install", "-q", "--dry-run", "--ignore-installed", "--report", str(report)]
    subprocess.run([*command, "-r", str(wanted), "-c", str(limits)], check=True)
    entries = json.loads(report.read_text())["install"]
    return [f"{one['metadata']['name']}=={one['metadata']['version']}" for one in entries]


def collect(lock: dict[str, Any], left_out: set[str], folder: Path) -> list[str]:
    """Everything a lock asks for: its own list and what its opened packages require."""
    wanted = list(lock["also"])
    stated = {canonicalize_name(Requirement(one).name) for one in wanted}
    for pin in lock.get("opened", []):
        for text in declared_requirements(pin, folder):
            name = canonicalize_name(Requirement(text).name)
            opened = {canonicalize_name(one.split("==")[0]) for one in lock["opened"]}
            if name not in left_out | stated | opened:
                wanted.append(text)
    return wanted


def write_lock(path: Path, title: str, pins: Iterable[str]) -> None:
    body = "\n".join(sorted(set(pins), key=str.lower))
    path.write_text(f"# {title}\n# {NOTE}\n{body}\n")


def relock(name: str, sources: dict[str, Any], upgrade: bool) -> None:
    lock = sources["locks"][name]
    path = HERE / lock["file"]
    left_out = {canonicalize_name(one) for one in sources["left_out"]["packages"]}
    below, near = (
        read_lock(HERE / sources["locks"][lock[key]]["file"]) if key in lock else {}
        for key in ("on_top_of", "near")
    )
    with tempfile.TemporaryDirectory(prefix="relock-") as scratch:
        folder = Path(scratch)
        wanted = collect(lock, left_out, folder)
        exact = {canonicalize_name(Requirement(one).name) for one in wanted if "==" in one}
        kept = {} if upgrade else read_lock(path)
        limits = [pin for key, pin in {**near, **kept, **below}.items() if key not in exact]
        pins = [*lock.get("opened", []), *resolve(wanted, limits, folder)]
    # The lock that this one stands on already installs the shared packages.
    fresh = [pin for pin in pins if canonicalize_name(pin.split("==")[0]) not in below]
    write_lock(path, lock["title"], fresh)
    print(f"{path.name}: {len(fresh)} packages")


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--upgrade", action="store_true", help="take the newest that fits")
    sources = tomllib.loads((HERE / "sources.toml").read_text())
    flags.add_argument("locks", nargs="*", default=list(sources["locks"]), metavar="LOCK")
    options = flags.parse_args()
    for name in options.locks:
        relock(name, sources, options.upgrade)


if __name__ == "__main__":
    main()
