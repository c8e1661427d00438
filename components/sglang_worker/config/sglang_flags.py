"""SGLang's own parser over the rest of the command line, and which flags were really given."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sglang_worker.config.strict_parser import (
    StrictParser,
    one_line,
    option_strings,
    unknown_flag,
)
from sglang_worker.errors import ConfigError

MODE_FLAG = "--disaggregation-mode"
# Dynamo's modes, which SGLang does not know, and what SGLang is told instead.
DYNAMO_MODES = {"encode": "null", "pd": "null", "agg": "null"}


class SglangValues(msgspec.Struct, frozen=True):
    """``argv`` is what SGLang's own parser accepts; ``mode`` is as the operator wrote it."""

    argv: tuple[str, ...]
    explicit: Mapping[str, Any]
    mode: str | None


def build_parser() -> StrictParser:
    """SGLang's declared flags on a parser that raises; the import loads torch (seconds)."""
    try:
        from sglang.srt.server_args import ServerArgs
    except ImportError as failure:
        raise ConfigError(one_line(f"SGLang cannot be imported: {failure}")) from failure

    parser = StrictParser(allow_abbrev=True)
    ServerArgs.add_cli_args(parser)
    return parser


def explicit_values(
    parser: StrictParser, argv: Sequence[str], other_options: Sequence[str] = ()
) -> dict[str, Any]:
    """Destination -> value for the flags that ``argv`` sets; defaults are absent.

    ``parser`` is left unchanged. Raises ConfigError for unknown flags (naming the nearest one
    of SGLang's and of ``other_options``), wrong values and missing required flags.
    """
    silent = copy.copy(parser)
    silent._actions = [copy.copy(action) for action in parser._actions]
    silent._option_string_actions = {
        option: action for action in silent._actions for option in action.option_strings
    }
    silent._defaults = {}
    required = [action for action in silent._actions if action.required]
    for action in silent._actions:
        action.default = argparse.SUPPRESS
        action.required = False
    namespace, extra = silent.known(argv)
    if extra:
        raise unknown_flag(extra[0], [*option_strings(parser), *other_options])
    values = vars(namespace)
    for action in required:
        # After the unknown flags: a mistyped --model-path is the better message.
        if action.dest not in values:
            raise ConfigError(f"{action.option_strings[0]} is missing; SGLang requires it")
    return values


def read_sglang(
    parser: StrictParser, argv: Sequence[str], other_options: Sequence[str] = ()
) -> SglangValues:
    """Parse ``argv`` (files merged in already) with Dynamo's two extra modes allowed."""
    mode_action = next((a for a in parser._actions if a.dest == "disaggregation_mode"), None)
    if mode_action is None:
        raise ConfigError(f"this SGLang has no {MODE_FLAG}; sglang >= 0.5.20 is needed")
    choices = mode_action.choices
    mode_action.choices = [*(choices or ()), *DYNAMO_MODES]
    try:
        explicit = explicit_values(parser, argv, other_options)
    finally:
        mode_action.choices = choices
    mode = explicit.get("disaggregation_mode")
    told = tuple(argv)
    if mode in DYNAMO_MODES:
        explicit["disaggregation_mode"] = DYNAMO_MODES[mode]
        told = without_flag(told, parser, "disaggregation_mode")
    return SglangValues(argv=told, explicit=explicit, mode=mode)


def without_flag(argv: Sequence[str], parser: StrictParser, dest: str) -> tuple[str, ...]:
    """``argv`` without every spelling of one single-valued flag, abbreviations included."""
    kept: list[str] = []
    skip = False
    for token in argv:
        if skip:
            skip = False
            continue
        name, equals, _ = token.partition("=")
        if name.startswith("--") and _resolves_to(parser, name) == dest:
            skip = not equals
            continue
        kept.append(token)
    return tuple(kept)


def _resolves_to(parser: StrictParser, name: str) -> str | None:
    """The destination that ``name`` means to argparse: exact, or an unambiguous beginning."""
    action = parser._option_string_actions.get(name)
    if action is not None:
        return str(action.dest)
    dests = {
        str(action.dest)
        for option, action in parser._option_string_actions.items()
        if option.startswith(name)
    }
    return dests.pop() if len(dests) == 1 else None


def parse_namespace(parser: StrictParser, argv: Sequence[str]) -> argparse.Namespace:
    """All of SGLang's values, defaults included, for `ServerArgs.from_cli_args`."""
    try:
        return parser.parse_args(list(argv))
    except ConfigError:
        raise
    except (ValueError, TypeError, AssertionError) as failure:
        raise ConfigError(one_line(f"SGLang refused the command line: {failure}")) from failure
