"""Dynamo's runtime and router flags, declared by ``dynamo.common.configuration``.

Dynamo's groups read their variables while they declare themselves, leniently (``yes?`` is a
false boolean there). Here every variable goes through the same parser as its flag, so a wrong
value is an error that names the variable.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from sglang_worker.config.booleans import parse_boolean
from sglang_worker.config.environment import hidden_variables
from sglang_worker.config.strict_parser import StrictParser, one_line, option_strings
from sglang_worker.errors import ConfigError

HIDDEN_PREFIXES = ("DYN_", "NATS_TLS_")
# Legacy flags that Dynamo hides from its help, which is where the others' variables are found.
_UNDOCUMENTED = {
    "dyn_enable_structural_tag": "DYN_ENABLE_STRUCTURAL_TAG",
    "dyn_structural_tag_scope": "DYN_STRUCTURAL_TAG_SCOPE",
    "dyn_structural_tag_schema": "DYN_STRUCTURAL_TAG_SCHEMA",
}
_VARIABLE_IN_HELP = re.compile(r"env var: ([A-Z0-9_]+) \|")


class Declared(msgspec.Struct, frozen=True):
    """A parser with the variable of each of its actions, by destination."""

    parser: StrictParser
    variables: Mapping[str, str]

    @property
    def options(self) -> list[str]:
        return option_strings(self.parser)


class DynamoValues(msgspec.Struct, frozen=True):
    """``values`` by dest, complete; ``sources`` only what was set: by flag or variable name."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]
    rest: tuple[str, ...]
    router: Mapping[str, Any] = {}
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}

    def __getitem__(self, dest: str) -> Any:
        return self.values[dest]

    def name(self, dest: str, flag: str) -> str:
        return self.sources.get(dest, flag)


def declare(add_arguments: Callable[[argparse.ArgumentParser], None]) -> Declared:
    """Build the parser as if no variable were set, so that its defaults are Dynamo's own."""
    parser = StrictParser()
    with hidden_variables(HIDDEN_PREFIXES):
        add_arguments(parser)
    variables = {}
    for action in parser._actions:
        if isinstance(action.choices, list):
            action.choices = sorted(action.choices)
        variable = variable_of(action)
        if variable:
            variables[action.dest] = variable
    return Declared(parser=parser, variables=variables)


def variable_of(action: argparse.Action) -> str | None:
    found = _VARIABLE_IN_HELP.search(action.help or "")
    return found.group(1) if found else _UNDOCUMENTED.get(action.dest)


def import_dynamo() -> None:
    """Import the runtime's bindings; raises ConfigError when they are not installed.

    They read the system port at import and warn about any above 32767. That port is our
    listener's, which takes all 65535; the runtime gets the second one before it starts.
    """
    with hidden_variables(("DYN_SYSTEM_PORT", "DYN_SYSTEM_HOST")):
        try:
            importlib.import_module("dynamo._core")
        except ImportError as failure:
            raise ConfigError(one_line(f"Dynamo cannot be imported: {failure}")) from failure


def declare_runtime() -> Declared:
    import_dynamo()
    from dynamo.common.configuration.groups.runtime_args import DynamoRuntimeArgGroup

    return declare(lambda parser: DynamoRuntimeArgGroup().add_arguments(parser))


def declare_router() -> Declared:
    from dynamo.common.configuration.groups.router_args import add_worker_router_arguments

    return declare(add_worker_router_arguments)


def read_dynamo(argv: Sequence[str], environ: Mapping[str, str]) -> DynamoValues:
    """Flags over variables over Dynamo's defaults; what is not Dynamo's is in ``rest``."""
    runtime = declare_runtime()
    values, sources, rest = read_declared(runtime, argv, environ)
    router = declare_router()
    routing, _, rest = read_declared(router, rest, environ)
    return DynamoValues(
        values=values,
        sources=sources,
        rest=tuple(rest),
        # Without a mode the worker advertises no routing and the frontend's own applies.
        router=routing if routing.get("router_mode") is not None else {},
        options=(*runtime.options, *router.options),
        environment=environment_of(runtime, values, sources),
    )


def environment_of(
    declared: Declared, values: Mapping[str, Any], sources: Mapping[str, str]
) -> dict[str, str]:
    """The variables of everything that was set, spelled as the Rust runtime reads them."""
    wanted = {}
    for dest in sources:
        variable, value = declared.variables.get(dest), values.get(dest)
        if variable is None:
            continue
        if isinstance(value, bool):
            wanted[variable] = "1" if value else "0"
        elif isinstance(value, str | int | float):
            wanted[variable] = str(value)
    return wanted


def read_declared(
    declared: Declared, argv: Sequence[str], environ: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Values, their sources and the unread rest of one declared group."""
    parser = declared.parser
    namespace, rest = parser.known(argv)
    values = vars(namespace)
    explicit = _explicit_dests(declared, argv)
    sources: dict[str, str] = dict(explicit)
    for action, variable in _with_variables(declared):
        text = environ.get(variable)
        if text is None or action.dest in explicit:
            continue
        read = _read_variable(parser, action, variable, text)
        if read is not None:
            values[action.dest] = read[0]
            sources[action.dest] = variable
    return values, sources, rest


def _with_variables(declared: Declared) -> Iterator[tuple[argparse.Action, str]]:
    seen: set[str] = set()
    for action in declared.parser._actions:
        variable = declared.variables.get(action.dest)
        if variable and action.dest not in seen:
            seen.add(action.dest)
            yield action, variable


def _explicit_dests(declared: Declared, argv: Sequence[str]) -> dict[str, str]:
    options = {
        option: action for action in declared.parser._actions for option in action.option_strings
    }
    found = {}
    for token in argv:
        action = options.get(token.split("=", 1)[0])
        if action is not None:
            found[action.dest] = token.split("=", 1)[0]
    return found


def _read_variable(
    parser: StrictParser, action: argparse.Action, variable: str, text: str
) -> tuple[Any] | None:
    """The variable's value in a one-tuple, through the flag's own parsing; None when empty."""
    flag = action.option_strings[0]
    if isinstance(action, argparse.BooleanOptionalAction):
        return (parse_boolean(variable, text),)
    if not text.strip():
        return None
    tokens = [flag, *text.split()] if action.nargs in ("*", "+") else [f"{flag}={text.strip()}"]
    try:
        namespace, _ = parser.known(tokens)
    except ConfigError as error:
        problem = str(error).removeprefix(f"{'/'.join(action.option_strings)}: ")
        raise ConfigError(f"{variable}={text!r}: {problem}") from None
    return (getattr(namespace, action.dest),)
