"""Imports of packages that exist on other hardware only, for classes that need them later."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock


class _StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports of the named packages, and of anything below them, succeed with mocks."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages = packages

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] in self._packages:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        return mock.MagicMock(__path__=[], __spec__=spec)

    def exec_module(self, module: Any) -> None:
        pass


@contextlib.contextmanager
def stubbed(*packages: str) -> Iterator[None]:
    """Packages of other hardware, for importing a class that only its forward pass needs."""
    finder = _StubFinder(packages)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n in sys.modules if n.partition(".")[0] in packages]:
            del sys.modules[name]
