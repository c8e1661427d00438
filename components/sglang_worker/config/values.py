"""Text from a flag or a variable -> checked value; both sources take the same path."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Callable
from typing import Any

from sglang_worker.config.booleans import parse_boolean
from sglang_worker.config.flags import Kind, OwnFlag
from sglang_worker.errors import ConfigError

_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")


def accepted_words(flag: OwnFlag) -> str:
    """What the flag takes, for errors and the documentation."""
    if flag.accepted:
        return flag.accepted
    if flag.choices:
        return ", ".join(flag.choices)
    if flag.minimum is not None and flag.maximum is not None:
        unit = "seconds from" if flag.kind is Kind.SECONDS else "a whole number from"
        return f"{unit} {flag.minimum:g} to {flag.maximum:g}"
    return "any text"


def _refuse(flag: OwnFlag, source: str, text: str, problem: str) -> ConfigError:
    return ConfigError(f"{source}={text!r} {problem}; accepted: {accepted_words(flag)}")


def _within(flag: OwnFlag, source: str, text: str, number: float) -> None:
    low = -math.inf if flag.minimum is None else flag.minimum
    high = math.inf if flag.maximum is None else flag.maximum
    if not low <= number <= high:
        raise _refuse(flag, source, text, "is out of range")


def _switch(flag: OwnFlag, source: str, text: str) -> bool:
    return parse_boolean(source, text)


def _text(flag: OwnFlag, source: str, text: str) -> str:
    return text.strip()


def _choice(flag: OwnFlag, source: str, text: str) -> str:
    word = text.strip()
    word = flag.aliases.get(word.lower(), word)
    if word not in flag.choices:
        raise _refuse(flag, source, text, "is not known")
    return word


def _integer(flag: OwnFlag, source: str, text: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()) is None:
        raise _refuse(flag, source, text, "is not a whole number")
    number = int(text)
    _within(flag, source, text, number)
    return number


def _seconds(flag: OwnFlag, source: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _refuse(flag, source, text, "is not a number of seconds") from None
    if not math.isfinite(number):
        raise _refuse(flag, source, text, "is not a finite number of seconds")
    _within(flag, source, text, number)
    return number


def _file(flag: OwnFlag, source: str, text: str) -> str:
    path = expand_path(text)
    if not is_file(path):
        raise _refuse(flag, source, text, "is not an existing file")
    if not os.access(path, os.R_OK):
        raise _refuse(flag, source, text, "is not readable")
    return path


def _host(flag: OwnFlag, source: str, text: str) -> str:
    host = text.strip()
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if _HOST_NAME.fullmatch(host) is None or re.fullmatch(r"[0-9.]+", host):
            raise _refuse(flag, source, text, "is no address") from None
    return host


def _routes(flag: OwnFlag, source: str, text: str) -> tuple[str, ...]:
    return tuple(text.split())


_CONVERTERS: dict[Kind, Callable[[OwnFlag, str, str], Any]] = {
    Kind.SWITCH: _switch,
    Kind.TEXT: _text,
    Kind.CHOICE: _choice,
    Kind.INTEGER: _integer,
    Kind.SECONDS: _seconds,
    Kind.FILE: _file,
    Kind.HOST: _host,
    Kind.ROUTES: _routes,
}


def convert(flag: OwnFlag, source: str, text: str) -> Any:
    """The checked value of ``text``; raises ConfigError naming ``source`` and what is accepted."""
    return _CONVERTERS[flag.kind](flag, source, text)


def expand_path(text: str) -> str:
    """``~`` and variables in a path, as shells and upstream expand them."""
    return os.path.expandvars(os.path.expanduser(text.strip()))


def is_file(path: str) -> bool:
    """os.path.isfile that answers False, not ValueError, for a path with a NUL byte."""
    try:
        return os.path.isfile(path)
    except ValueError:
        return False
