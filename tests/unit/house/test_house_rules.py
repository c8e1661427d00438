"""Rules that hold for every committed file; a failing test names the file and the line."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.environment import REPOSITORY

PACKAGE = REPOSITORY / "components" / "sglang_worker"
BINARY = {".safetensors", ".png", ".npz", ".gz"}
LONGEST_FILE_LINES = 400
README_LINES = 200
ENVIRONMENT_WRITER = PACKAGE / "config" / "environment.py"

# Written in pieces, so that this file passes its own rules.
REGISTRY_HOSTS = re.compile(
    "|".join(
        re.escape(host)
        for host in ("pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "pypi" + ".nvidia")
    )
)
MACHINE_PATHS = re.compile(r"(?<![\w.$}/])/(?:work|root|farm|tmp/eng|tmp/team)(?:/|\b)")
COPYRIGHT = re.compile("SPDX" + "-|Copyright" + r" \(c\)", re.IGNORECASE)
UNFINISHED = re.compile("TO" + "DO|FIX" + "ME|XX" + "X|NotImplemented" + "Error")


def committed() -> list[Path]:
    """Tracked files and new ones that are not ignored; this is a checkout in CI and at home."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    ).stdout.decode()
    paths = [REPOSITORY / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file() and path.suffix not in BINARY]


def numbered(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        yield f"{path.relative_to(REPOSITORY)}:{number}", line


def offences(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{place}: {line.strip()[:120]}"
        for path in paths
        for place, line in numbered(path)
        if pattern.search(line)
    ]


@pytest.fixture(scope="module")
def files() -> list[Path]:
    return committed()


@pytest.fixture(scope="module")
def sources(files: list[Path]) -> list[Path]:
    return [path for path in files if path.suffix == ".py"]


def test_no_file_names_a_package_registry(files: list[Path]) -> None:
    assert offences(REGISTRY_HOSTS, files) == []


def test_no_file_names_a_folder_of_one_machine(files: list[Path]) -> None:
    assert offences(MACHINE_PATHS, files) == []


def test_no_file_carries_a_copyright_header(files: list[Path]) -> None:
    unlicensed = [path for path in files if path.name != "LICENSE"]
    assert offences(COPYRIGHT, unlicensed) == []


def test_nothing_unfinished_is_called_done(sources: list[Path]) -> None:
    assert offences(UNFINISHED, sources) == []


def test_no_file_is_too_long_to_hold_in_the_head(sources: list[Path]) -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources}
    long = {str(path): count for path, count in lengths.items() if count > LONGEST_FILE_LINES}
    assert long == {}


def test_the_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) < README_LINES


def test_all_modules_postpone_annotations(sources: list[Path]) -> None:
    missing = [
        str(path.relative_to(REPOSITORY))
        for path in sources
        if "from __future__ import annotations" not in path.read_text()
        and any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in _tree(path).body)
    ]
    assert missing == []


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def _is_environ(node: ast.expr) -> bool:
    """``os.environ`` or a bare ``environ`` that was imported from os under that name."""
    return isinstance(node, ast.Attribute) and node.attr == "environ" and _name(node.value) == "os"


def _name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


WRITING_METHODS = {"update", "setdefault", "pop", "popitem", "clear"}


def environment_writes(tree: ast.Module) -> Iterator[int]:
    """Line numbers of everything that changes this process's environment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.Delete | ast.AugAssign):
            targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            if any(_is_environ(t.value if isinstance(t, ast.Subscript) else t) for t in targets):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method, owner = node.func.attr, node.func.value
            if method in WRITING_METHODS and _is_environ(owner):
                yield node.lineno
            if method in {"putenv", "unsetenv"} and _name(owner) == "os":
                yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['A'] = '1'",
        "os.environ.update(a)",
        "os.environ.setdefault('A', '1')",
        "del os.environ['A']",
        "os.environ |= a",
        "os.putenv('A', '1')",
    ],
)
def test_the_check_sees_every_way_to_write_the_environment(line: str) -> None:
    assert list(environment_writes(ast.parse(line))) == [1]


def test_one_module_alone_writes_the_environment() -> None:
    writes = [
        f"{path.relative_to(REPOSITORY)}:{line}"
        for path in PACKAGE.rglob("*.py")
        if path != ENVIRONMENT_WRITER
        for line in environment_writes(_tree(path))
    ]
    assert writes == []


def waits_that_swallow_cancellation(tree: ast.Module) -> Iterator[int]:
    """Line numbers of `asyncio.wait_for`, called or imported, under whatever name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if node.attr == "wait_for" and _name(node.value) == "asyncio":
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module in {"asyncio", "asyncio.tasks"}:
            if any(alias.name == "wait_for" for alias in node.names):
                yield node.lineno
        elif isinstance(node, ast.Import) and any(
            alias.name == "asyncio.tasks" or (alias.name == "asyncio" and alias.asname)
            for alias in node.names
        ):
            yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        "await asyncio.wait_for(work, 1)",
        "bounded = partial(asyncio.wait_for, timeout=1)",
        "from asyncio import Event, wait_for as bounded",
        "import asyncio as aio",
    ],
)
def test_the_check_sees_every_way_to_wait_for(line: str) -> None:
    assert list(waits_that_swallow_cancellation(ast.parse(line))) == [1]


def test_no_wait_swallows_a_cancellation() -> None:
    """Python 3.11's `asyncio.wait_for` returns what it waited for, and the cancellation of its
    caller is lost, when both come in one turn of the loop: a loop around it then never ends, and
    the process with it. ``async with asyncio.timeout(...)`` lets the cancellation through."""
    waits = [
        f"{path.relative_to(REPOSITORY)}:{line}"
        for path in PACKAGE.rglob("*.py")
        for line in waits_that_swallow_cancellation(_tree(path))
    ]
    assert waits == []
