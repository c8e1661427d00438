"""Puts the platform's functions and classes where SGLang would launch kernels.

SGLang's HookRegistry does the patching, but it only logs a target that it cannot find; `install`
checks every one afterwards and names those that did not change. It runs from
``platform.init_backend``, which SGLang calls while it imports the model runner, in each process
that will build one, so no general plugin is needed and a forked child inherits the result.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sglang.srt.plugins.hook_registry import HookRegistry, HookSource, HookType

from sglang_worker.errors import EngineStartError
from sglang_worker.reference_platform import older
from sglang_worker.reference_platform.targets import (
    ABSENT,
    ADJUSTMENTS,
    RELOCATED,
    REPLACEMENTS,
    SPECULATIVE,
)

_SOURCE = HookSource(plugin_name="reference_platform", dist_name="dynamo-sglang-worker")


def speculation_fits() -> bool:
    """Whether this SGLang version has every target that speculative decoding needs."""
    return not [*_unresolved(SPECULATIVE), *_missing_names()]


@functools.cache
def install() -> None:
    """Replaces every target; raises EngineStartError naming those that could not be replaced."""
    speculative = SPECULATIVE if speculation_fits() else {}
    missing = list(_unresolved(REPLACEMENTS | ADJUSTMENTS))
    before: dict[str, Any] = {}
    for kind, table in (
        (HookType.REPLACE, {**REPLACEMENTS, **speculative, **older.replacements()}),
        (HookType.AFTER, ADJUSTMENTS),
    ):
        for target, function in table.items():
            place = _place(target)
            if place is not None:
                before[place] = pkgutil.resolve_name(place)
                HookRegistry.register(place, function, kind, source=_SOURCE)
    HookRegistry.apply_hooks()
    missing += [
        f"{place} (still SGLang's own)"
        for place, original in before.items()
        if pkgutil.resolve_name(place) is original
    ]
    if missing:
        raise EngineStartError(
            "the CPU reference platform does not fit this SGLang version; "
            f"it could not replace: {'; '.join(missing)}"
        )
    if speculative:
        _provide_absent()


def _place(target: str) -> str | None:
    """The path at which this version keeps the target, or None."""
    for path in (target, RELOCATED.get(target)):
        if path is not None and _resolves(path):
            return path
    return None


def _resolves(path: str) -> bool:
    try:
        pkgutil.resolve_name(path)
    except (ImportError, AttributeError):
        return False
    return True


def _unresolved(table: Mapping[str, Callable[..., Any]]) -> Iterator[str]:
    for target in table:
        if _place(target) is None:
            yield f"{target} (not found)"


def _missing_names() -> Iterator[str]:
    for module_name, name in ABSENT:
        if not _resolves(f"{module_name}.{name}"):
            yield f"{module_name}.{name} (not found)"


def _provide_absent() -> None:
    """Binds our functions to SGLang's None names, also where they were imported already."""
    for (module_name, name), function in ABSENT.items():
        setattr(importlib.import_module(module_name), name, function)
        for other in list(sys.modules.values()):
            if getattr(other, "__name__", "").startswith("sglang.") and (
                vars(other).get(name, function) is None
            ):
                setattr(other, name, function)
