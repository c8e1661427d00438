"""argparse that raises ConfigError in one line instead of printing its usage and exiting."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from sglang_worker.errors import ConfigError


class StrictParser(argparse.ArgumentParser):
    """Options only, no ``--help`` of its own; every argparse error becomes a ConfigError."""

    def __init__(self, *, allow_abbrev: bool = False, prog: str = "sglang-worker") -> None:
        super().__init__(prog=prog, add_help=False, allow_abbrev=allow_abbrev)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(one_line(re.sub(r"^argument ([^:]+): ", r"\1: ", message)))

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise ConfigError(one_line(message or f"argument parser exited with {status}"))

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """As argparse, but in our words and in a stable order (some choices are sets)."""
        if action.choices is None or value in action.choices:
            return
        accepted = ", ".join(sorted(str(choice) for choice in action.choices))
        raise argparse.ArgumentError(action, f"invalid choice {value!r}; accepted: {accepted}")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """argparse drops ``--`` from ``--flag=--`` and then hands out an empty list as value."""
        if "--" in arg_strings:
            raise argparse.ArgumentError(action, "'--' is no value")
        return super()._get_values(action, arg_strings)

    def known(self, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Like ``parse_known_args``, for option parsers that see each other's options."""
        try:
            return self.parse_known_args(list(argv))
        except ConfigError:
            raise
        except (ValueError, TypeError, OSError, KeyError, AssertionError) as failure:
            # Custom actions (JSON, LoRA paths) raise what their conversion raises.
            raise ConfigError(one_line(f"cannot read the command line: {failure}")) from failure


def one_line(text: str) -> str:
    return " ".join(str(text).split())


def option_strings(parser: argparse.ArgumentParser) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings]


def unknown_flag(token: str, known: Iterable[str]) -> ConfigError:
    """The error for ``token``, with the nearest known flag when one is near."""
    name = token.split("=", 1)[0]
    if not name.startswith("-"):
        return ConfigError(f"unexpected argument {token!r}: every value belongs to a --flag")
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    hint = f"; did you mean {near[0]}?" if near else "; sglang-worker --help lists all"
    return ConfigError(one_line(f"unknown flag {name}{hint}"))
