"""``--dump-config-to``: the resolved configuration as JSON, redacted, for its owner only."""

from __future__ import annotations

import json
import os
from typing import Any

import msgspec

from sglang_worker.config.strict_parser import one_line
from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.errors import ConfigError
from sglang_worker.redaction import redact, redact_arguments


def dump_config(config: WorkerConfig, server_args: Any = None) -> None:
    """Write the file if one was asked for; raises ConfigError when it cannot be written."""
    if not config.dump_config_to:
        return
    text = json.dumps(contents(config, server_args), indent=2, sort_keys=True, default=str) + "\n"
    part = f"{config.dump_config_to}.part"
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, config.dump_config_to)
    except (OSError, ValueError) as failure:
        raise ConfigError(
            one_line(f"--dump-config-to={config.dump_config_to!r} cannot be written: {failure}")
        ) from failure


def contents(config: WorkerConfig, server_args: Any = None) -> dict[str, Any]:
    """``worker`` is this program's configuration, ``server_args`` what SGLang was given."""
    worker = msgspec.to_builtins(config, enc_hook=str)
    worker["engine"]["argv"] = redact_arguments(config.engine.argv)
    given = server_args
    if isinstance(server_args, msgspec.Struct):
        given = {name: getattr(server_args, name) for name in server_args.__struct_fields__}
    cleaned: dict[str, Any] = redact({"worker": worker, "server_args": given})
    return cleaned
