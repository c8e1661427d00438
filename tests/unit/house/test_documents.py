"""Links and commands in the documents lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.environment import REPOSITORY
from tests.unit.house.test_house_rules import committed

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MAKE = re.compile(r"\bmake ((?:[a-z]+(?:-[a-z0-9]+)* ?)+)")
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)


def documents() -> list[Path]:
    return [path for path in committed() if path.suffix == ".md"]


def anchors(path: Path) -> set[str]:
    """Heading anchors as common renderers derive them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def test_every_relative_link_resolves() -> None:
    broken = []
    for document in documents():
        for target in LINK.findall(CODE.sub("", document.read_text())):
            if "://" in target or target.startswith("mailto:"):
                continue
            name, _, anchor = target.partition("#")
            file = (document.parent / name).resolve() if name else document
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{document.relative_to(REPOSITORY)}: {target}")
    assert broken == []


def test_every_make_target_in_a_document_exists() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, re.MULTILINE))
    unknown = {
        f"{document.relative_to(REPOSITORY)}: make {name}"
        for document in documents()
        for code in CODE.findall(document.read_text())
        for words in MAKE.findall(code)
        for name in words.split()
        if name not in targets
    }
    assert unknown == set()


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "components/sglang_worker/README.md"]
)
def test_the_entry_documents_exist(name: str) -> None:
    assert (REPOSITORY / name).stat().st_size > 500
