"""``DYN_LOG``, which the runtime reads as Rust filters, for Python's loggers. Pure."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

VARIABLE = "DYN_LOG"
_NAMES = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "off": logging.CRITICAL,
}


class Levels(msgspec.Struct, frozen=True):
    """``base`` for everything, ``targets`` for loggers by name."""

    base: int = logging.INFO
    targets: Mapping[str, int] = {}


def parse_levels(text: str) -> Levels:
    """``info,sglang_worker=debug,dynamo_runtime::worker=warn``; what is no such thing is left to
    the runtime, which reads the same text."""
    base, targets = logging.INFO, {}
    for directive in text.split(","):
        target, equals, word = directive.strip().rpartition("=")
        level = _NAMES.get(word.strip().lower())
        if level is None:
            continue
        if equals:
            targets[target.strip().replace("::", ".")] = level
        else:
            base = level
    return Levels(base, targets)
