"""Where the worker serves: ``dyn://namespace.component.endpoint``, or a default per type."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sglang_worker.config.worker_config import EndpointAddress, WorkerType
from sglang_worker.config.worker_types import DEFAULT_COMPONENT
from sglang_worker.errors import ConfigError

SCHEME = "dyn://"
NAMESPACE_SUFFIX = "DYN_NAMESPACE_WORKER_SUFFIX"
_PART = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def parse_endpoint(source: str, text: str) -> EndpointAddress:
    """Three parts, with or without the scheme; raises ConfigError naming ``source``."""
    parts = text.removeprefix(SCHEME).split(".")
    if len(parts) != 3 or not all(_PART.fullmatch(part) for part in parts):
        raise ConfigError(
            f"{source}={text!r} is no endpoint; accepted: dyn://namespace.component.endpoint "
            "(letters, digits, _ and -)"
        )
    return EndpointAddress(*parts)


def worker_namespace(source: str, namespace: str, environ: Mapping[str, str]) -> str:
    """The namespace with the pool's suffix, if ``DYN_NAMESPACE_WORKER_SUFFIX`` is set."""
    suffix = environ.get(NAMESPACE_SUFFIX, "").strip()
    for name, text in ((source, namespace), (NAMESPACE_SUFFIX, suffix or "x")):
        if _PART.fullmatch(text) is None:
            raise ConfigError(f"{name}={text!r} is no name; accepted: letters, digits, _ and -")
    return f"{namespace}-{suffix}" if suffix else namespace


def default_endpoint(worker_type: WorkerType, namespace: str) -> EndpointAddress:
    return EndpointAddress(namespace, default_component(worker_type), "generate")


def default_component(worker_type: WorkerType) -> str:
    return DEFAULT_COMPONENT.get(worker_type, "backend")
