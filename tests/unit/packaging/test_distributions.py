"""What the wheel and the source distribution hold."""

from __future__ import annotations

import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.support.environment import REPOSITORY


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_the_overlay_and_its_pth_line(names: set[str]) -> None:
    assert "sglang_worker_overlay.pth" in names
    assert "sglang_worker/overlay/dynamo/sglang/__init__.py" in names
    assert "sglang_worker/overlay/dynamo/sglang/__main__.py" in names


def test_the_wheel_claims_no_file_of_upstream(names: set[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "sglang_worker",
        "sglang_worker_overlay.pth",
    }


def test_data_files_are_in_the_wheel(names: set[str]) -> None:
    package = REPOSITORY / "components"
    data = {
        str(path.relative_to(package))
        for suffix in ("safetensors", "html", "jinja", "json", "txt")
        for path in (package / "sglang_worker").rglob(f"*.{suffix}")
    }
    assert any(name.endswith(".safetensors") for name in data)
    assert any(name.endswith(".html") for name in data)
    assert data <= names


def test_neither_tests_nor_leftovers_are_in_the_wheel(names: set[str]) -> None:
    assert not [name for name in names if "test" in name.split("/")[-1] or "__pycache__" in name]


def test_the_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < 10_000_000


def test_the_licence_is_apache_and_whole(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folder = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        fields = Parser().parsestr(archive.read(folder).decode())
        text = archive.read(folder.replace("METADATA", "licenses/LICENSE")).decode()
    assert fields["License-Expression"] == "Apache-2.0"
    assert text == (REPOSITORY / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_source_distribution_can_be_built_again(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    needed = {"pyproject.toml", "LICENSE", "README.md", "build_hooks/overlay_pth.py"}
    assert needed <= names
    assert "components/sglang_worker/overlay/dynamo/sglang/__main__.py" in names
    assert not [name for name in names if name.startswith((".venv", ".cache", ".demo", ".gpu"))]
