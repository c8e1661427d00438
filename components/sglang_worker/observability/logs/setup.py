"""Sets up logging here and, through SGLang's own setting, in the engine's processes.

Plain text is SGLang's format in all of them. With Dynamo's JSON log on (``DYN_LOGGING_JSONL``) all
write JSON lines with the runtime's field names. Only SGLang's request log (``--log-requests``)
keeps a format and a target of its own: ``--log-requests-format json``.
"""

from __future__ import annotations

import atexit
import json
import logging
import logging.config
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from sglang_worker.observability.logs.flood import FloodFilter
from sglang_worker.observability.logs.levels import VARIABLE, Levels, parse_levels
from sglang_worker.observability.logs.tracebacks import StderrGate

JSON_VARIABLE = "DYN_LOGGING_JSONL"
ENGINE_VARIABLE = "SGLANG_LOGGING_CONFIG_PATH"
# As the runtime reads it: anything else is no.
YES = frozenset({"1", "true", "on", "yes"})
TEXT_FORMAT = "[%(asctime)s] %(message)s"
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
CHATTY = ("httpx", "httpcore")


def wants_json(environ: Mapping[str, str]) -> bool:
    return environ.get(JSON_VARIABLE, "").strip().lower() in YES


def configure(environ: Mapping[str, str]) -> None:
    """This process's logging; the first thing a program does."""
    levels = parse_levels(environ.get(VARIABLE, ""))
    if wants_json(environ):
        logging.config.dictConfig(json_config(levels, None))
        return
    logging.basicConfig(level=levels.base, format=TEXT_FORMAT, datefmt=TIME_FORMAT)
    # SGLang replaces handlers and the root's level, but leaves the levels of named loggers alone.
    logging.getLogger("sglang_worker").setLevel(levels.base)
    for name, level in levels.targets.items():
        logging.getLogger(name).setLevel(level)
    bound_floods()


def for_engine(environ: Mapping[str, str], log_level: str | None) -> dict[str, str]:
    """Variables for SGLang's processes; empty when text is wanted or the operator set his own.

    ``log_level``: an explicit ``--log-level``.
    """
    if not wants_json(environ) or environ.get(ENGINE_VARIABLE):
        return {}
    config = json_config(parse_levels(environ.get(VARIABLE, "")), log_level)
    descriptor, path = tempfile.mkstemp(prefix="sglang-worker-logging-", suffix=".json")
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(config, file)
    # Forked children inherit the registration; the file is this process's.
    atexit.register(_remove, path, os.getpid())
    return {ENGINE_VARIABLE: path}


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid and os.path.exists(path):
        os.unlink(path)


def json_config(levels: Levels, engine_level: str | None) -> dict[str, Any]:
    """For `logging.config.dictConfig`, here and in SGLang's processes."""
    package = "sglang_worker.observability.logs"
    named: dict[str, dict[str, Any]] = {name: {"level": "WARNING"} for name in CHATTY}
    if engine_level is not None:
        named["sglang"] = {"level": engine_level.upper()}
    named.update({name: {"level": level} for name, level in levels.targets.items()})
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": f"{package}.jsonl.JsonFormatter"}},
        "filters": {"floods": {"()": f"{package}.flood.FloodFilter"}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "stream": "ext://sys.stderr",
                "formatter": "json",
                "filters": ["floods"],
            }
        },
        "root": {"handlers": ["stderr"], "level": levels.base},
        "loggers": named,
    }


def settle() -> None:
    """After the engine's start, which replaced handlers: bound floods again, and stand between the
    runtime's threads and stderr."""
    bound_floods()
    if not isinstance(sys.stderr, StderrGate):
        sys.stderr = StderrGate(sys.stderr)


def bound_floods() -> None:
    """Every handler of the root logger gets the filter, once."""
    for handler in logging.getLogger().handlers:
        if not any(isinstance(one, FloodFilter) for one in handler.filters):
            handler.addFilter(FloodFilter())
