"""SGLang flags from YAML: one section of ``--disagg-config``, or all of SGLang's ``--config``.

The section goes through a temporary file (0600, deleted at once) and SGLang's own merger, so a
file means here what it means to SGLang; only what that merger refuses (repeatable and negatable
flags) is spelled out by us. Flags of the command line come after the file's, so they win.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from sglang_worker.config.strict_parser import one_line, unknown_flag
from sglang_worker.config.values import is_file
from sglang_worker.errors import ConfigError

CONFIG_FLAG = "--config"


def merge_files(
    parser: argparse.ArgumentParser,
    argv: Sequence[str],
    disagg_config: str | None,
    disagg_config_key: str | None,
) -> tuple[str, ...]:
    """``argv`` with the file's flags in front; without a file it comes back as it is."""
    argv, own_file = _take_config(argv)
    if disagg_config is not None and disagg_config_key is not None:
        if own_file is not None:
            raise ConfigError(
                f"{CONFIG_FLAG} and --disagg-config are both given; SGLang reads one file only"
            )
        section = load_section(disagg_config, disagg_config_key)
        return (*section_arguments(parser, section, f"--disagg-config {disagg_config}"), *argv)
    if own_file is not None:
        return (
            *section_arguments(parser, load_mapping(own_file), f"{CONFIG_FLAG} {own_file}"),
            *argv,
        )
    return tuple(argv)


def _take_config(argv: Sequence[str]) -> tuple[list[str], str | None]:
    """Remove SGLang's ``--config``; both ``--config F`` and ``--config=F`` are read."""
    rest: list[str] = []
    found: list[str] = []
    tokens = iter(argv)
    for token in tokens:
        if token == CONFIG_FLAG:
            value = next(tokens, None)
            if value is None or value.startswith("--"):
                raise ConfigError(f"{CONFIG_FLAG} needs the path of a YAML file")
            found.append(value)
        elif token.startswith(f"{CONFIG_FLAG}="):
            found.append(token.split("=", 1)[1])
        else:
            rest.append(token)
    if len(found) > 1:
        raise ConfigError(f"{CONFIG_FLAG} is given {len(found)} times; SGLang reads one file only")
    return rest, found[0] if found else None


def load_mapping(path: str) -> dict[str, Any]:
    """The YAML mapping in ``path``; an empty file is an empty mapping."""
    if not is_file(path):
        raise ConfigError(f"configuration file {path!r} does not exist")
    try:
        with open(path, encoding="utf-8") as file:
            data = yaml.safe_load(file)
    except (OSError, ValueError, yaml.YAMLError) as failure:
        raise ConfigError(one_line(f"cannot read {path!r} as YAML: {failure}")) from failure
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path!r} must hold a YAML mapping, not {type(data).__name__}")
    return data


def load_section(path: str, key: str) -> dict[str, Any]:
    data = load_mapping(path)
    if key not in data:
        names = ", ".join(sorted(map(str, data))) or "none"
        raise ConfigError(f"--disagg-config-key {key!r} is no section of {path!r}; it has: {names}")
    section = data[key]
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise ConfigError(
            f"section {key!r} of {path!r} must be a mapping of flags, not {type(section).__name__}"
        )
    return section


def section_arguments(
    parser: argparse.ArgumentParser, section: Mapping[Any, Any], source: str
) -> tuple[str, ...]:
    """The section as command-line tokens; raises ConfigError naming ``source`` and the key."""
    known = _actions_by_key(parser)
    for_merger: dict[str, Any] = {}
    spelled: list[str] = []
    for key, value in section.items():
        name = str(key).replace("_", "-")
        action = known.get(name)
        if action is None:
            error = unknown_flag(f"--{name}", [f"--{option}" for option in known])
            raise ConfigError(f"{source}: {error}")
        if value is None:
            continue
        if _merger_reads(action):
            if _is_switch(action) and not isinstance(value, bool):
                raise ConfigError(f"{source}: {name} takes true or false, not {value!r}")
            for_merger[name] = value
        else:
            spelled.extend(_spell(action, name, value))
    return (*_merged(parser, for_merger, source), *spelled)


def _actions_by_key(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {
        option[2:]: action
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and option != CONFIG_FLAG
    }


def _is_switch(action: argparse.Action) -> bool:
    return isinstance(action, argparse._StoreTrueAction)


def _merger_reads(action: argparse.Action) -> bool:
    return isinstance(action, argparse._StoreTrueAction | argparse._StoreAction) or (
        action.nargs is None and not isinstance(action, argparse._AppendAction)
    )


def _spell(action: argparse.Action, name: str, value: Any) -> list[str]:
    """True is the bare flag, false is absence, a list repeats the flag or its values."""
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    values = [str(item) for item in (value if isinstance(value, list) else [value])]
    if isinstance(action, argparse._AppendAction):
        return [token for item in values for token in (f"--{name}", item)]
    return [f"--{name}", *values]


def _merged(
    parser: argparse.ArgumentParser, section: Mapping[str, Any], source: str
) -> tuple[str, ...]:
    from sglang.srt.utils.server_args_config_parser import ConfigArgumentMerger

    if not section:
        return ()
    # mkstemp creates the file for its owner only: a section may hold an API key.
    descriptor, path = tempfile.mkstemp(prefix="sglang-worker-", suffix=".yaml")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yaml.safe_dump(dict(section), file, sort_keys=False)
        merger = ConfigArgumentMerger(parser)
        return tuple(merger.merge_config_with_args([CONFIG_FLAG, path]))
    except (ValueError, TypeError, yaml.YAMLError) as failure:
        text = str(failure).replace(path, source)
        raise ConfigError(one_line(f"{source}: {text}")) from failure
    finally:
        os.unlink(path)
