"""Reads the worker's own flags and variables; the rest of the command line passes through."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sglang_worker.config.flags import OWN_FLAGS, Kind, OwnFlag
from sglang_worker.config.strict_parser import StrictParser
from sglang_worker.config.values import convert

CHECK_LEVELS = ("static", "model")


class OwnValues(msgspec.Struct, frozen=True):
    """``values`` by dest, complete; ``sources`` only for what was set: its flag or variable."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]
    rest: tuple[str, ...]
    check: str | None = None

    def __getitem__(self, dest: str) -> Any:
        return self.values[dest]

    def name(self, flag: OwnFlag) -> str:
        """How the operator set ``flag``, for error messages."""
        return self.sources.get(flag.dest, flag.name or flag.variable or flag.dest)


def build_parser() -> StrictParser:
    """Values stay text: `convert` checks flags and variables alike."""
    parser = StrictParser()
    for flag in OWN_FLAGS:
        if flag.name is None:
            continue
        if flag.kind is Kind.SWITCH:
            parser.add_argument(
                flag.name,
                dest=flag.dest,
                action=argparse.BooleanOptionalAction,
                default=argparse.SUPPRESS,
            )
        elif flag.kind is Kind.ROUTES:
            parser.add_argument(
                flag.name, dest=flag.dest, action="append", default=argparse.SUPPRESS
            )
        else:
            parser.add_argument(flag.name, dest=flag.dest, default=argparse.SUPPRESS)
    parser.add_argument(
        "--check", nargs="?", const="static", choices=CHECK_LEVELS, default=argparse.SUPPRESS
    )
    return parser


def read_own(argv: Sequence[str], environ: Mapping[str, str]) -> OwnValues:
    """Flags over variables over defaults; raises ConfigError for the first wrong value."""
    namespace, rest = build_parser().known(argv)
    given = vars(namespace)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for flag in OWN_FLAGS:
        values[flag.dest] = flag.default
        text = variable_text(flag, environ)
        if text is not None:
            values[flag.dest] = convert(flag, str(flag.variable), text)
            sources[flag.dest] = str(flag.variable)
        if flag.dest in given:
            values[flag.dest] = _from_flag(flag, given[flag.dest], values[flag.dest])
            sources[flag.dest] = str(flag.name)
    return OwnValues(values=values, sources=sources, rest=tuple(rest), check=given.get("check"))


def variable_text(flag: OwnFlag, environ: Mapping[str, str]) -> str | None:
    """The variable's text; an empty variable is unset, except that a switch reads it as false."""
    text = environ.get(flag.variable) if flag.variable else None
    if text is None or (not text.strip() and flag.kind is not Kind.SWITCH):
        return None
    return text


def _from_flag(flag: OwnFlag, given: Any, from_variable: Any) -> Any:
    if flag.kind is Kind.SWITCH:
        return bool(given)
    if flag.kind is Kind.ROUTES:
        return (*from_variable, *given)
    return convert(flag, str(flag.name), given)
