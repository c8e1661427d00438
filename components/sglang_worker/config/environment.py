"""The only module that changes ``os.environ`` (Dynamo's and SGLang's settings are read there)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.observability.metrics import folder

RUNTIME_DEADLINE = "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"
# The runtime cuts streams with an error that does not migrate when its own deadline ends first.
RUNTIME_DEADLINE_MARGIN_S = 30
COREDUMP_WAIT = "SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS"


@contextmanager
def hidden_variables(prefixes: tuple[str, ...]) -> Iterator[None]:
    """Take variables with these prefixes out of the environment for the length of the block.

    Only for the single-threaded start: Dynamo's flag groups read them while they declare
    themselves and offer no other way to see their plain defaults.
    """
    saved = {name: text for name, text in os.environ.items() if name.startswith(prefixes)}
    for name in saved:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(saved)


@contextmanager
def shown_to_children(name: str, value: str | None) -> Iterator[None]:
    """Processes that start inside find ``name`` with this value, or (None) not at all."""
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


def prepare(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Set what must stand before torch loads; the entry point calls it before it parses.

    Returns the variables that were set. Only the CPU reference platform needs any; a variable
    that the operator set is left alone.
    """
    from sglang_worker.config.platform import process_environment

    wanted = process_environment(os.environ if environ is None else environ)
    added = {name: text for name, text in wanted.items() if name not in os.environ}
    os.environ.update(added)
    return added


def export(variables_to_set: Mapping[str, str]) -> None:
    """Set variables that are known only while starting, for the engine's processes to inherit."""
    os.environ.update(variables_to_set)


def apply(config: WorkerConfig) -> None:
    """Write what Dynamo's runtime and SGLang read from the environment, before either starts."""
    prepare()
    claim_metrics_folder(config)
    os.environ.update(variables(config, os.environ))
    for name in switched_off(config):
        os.environ.pop(name, None)


def claim_metrics_folder(config: WorkerConfig) -> None:
    """Name the folder of SGLang's metrics before anything imports prometheus_client.

    Raises ConfigError when the operator's own folder is of no use.
    """
    for name in (folder.VARIABLE, folder.OLD_VARIABLE):
        if os.environ.get(name) == "":
            # prometheus_client would take the working directory.
            del os.environ[name]
    if config.engine.explicit.get("enable_metrics"):
        os.environ[folder.VARIABLE] = str(folder.claim(os.environ).path)


def variables(config: WorkerConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that `apply` sets, as a pure function of configuration and environment."""
    wanted = dict(config.environment)
    wanted["DYN_RESPONSE_PLANE"] = config.runtime.response_plane
    # SGLang's processes read their level here; its own default (3) is chattier than Dynamo's.
    wanted["SGLANG_TRACE_LEVEL"] = str(config.trace_level)
    # As the worker read them: the runtime is less lenient about spelling.
    wanted["DYN_HEALTH_CHECK_ENABLED"] = "true" if config.health.canary else "false"
    wanted["DYN_CANARY_WAIT_TIME"] = str(config.health.canary_wait_s)
    wanted["DYN_HEALTH_CHECK_REQUEST_TIMEOUT"] = str(config.health.canary_timeout_s)
    if config.system.port is None:
        wanted["DYN_SYSTEM_PORT"] = "-1"
    else:
        # The public port is the listener's; the runtime's own server takes the second one.
        # With gateways their model cards lead to theirs, and only the listener to this process's.
        served = config.gateway_workers <= 1
        wanted["DYN_SYSTEM_PORT"] = str(config.system.metadata_port if served else 0)
        wanted["DYN_SYSTEM_HOST"] = config.system.host
    if not environ.get(RUNTIME_DEADLINE):
        wanted[RUNTIME_DEADLINE] = str(runtime_deadline_s(config))
    if COREDUMP_WAIT not in environ and not _triggers_coredumps(config, environ):
        # Without coredumps SGLang would still sleep a minute before it reports a dead child.
        wanted[COREDUMP_WAIT] = "0"
    if "PYTHONHASHSEED" not in environ:
        # Hashes of prompts must agree between the processes of all workers.
        wanted["PYTHONHASHSEED"] = "0"
    if (config.engine.explicit.get("node_rank") or 0) >= 1:
        # The worker itself waits on later nodes; SGLang must not block in its constructor.
        wanted["SGLANG_BLOCK_NONZERO_RANK_CHILDREN"] = "0"
    return wanted


def runtime_deadline_s(config: WorkerConfig) -> int:
    """Whole seconds, above the worker's own shutdown budget."""
    budget_s = config.lifecycle.routing_grace_s + config.lifecycle.shutdown_timeout_s
    return int(budget_s) + RUNTIME_DEADLINE_MARGIN_S


def switched_off(config: WorkerConfig) -> tuple[str, ...]:
    """Variables whose mere presence means yes, to be removed when the flag says no."""
    off = {"tcp_tls_insecure": "DYN_TCP_TLS_INSECURE", "nats_tls_insecure": "NATS_TLS_INSECURE"}
    return tuple(name for dest, name in off.items() if not config.dynamo.get(dest))


def _triggers_coredumps(config: WorkerConfig, environ: Mapping[str, str]) -> bool:
    return environ.get("CUDA_ENABLE_USER_TRIGGERED_COREDUMP") == "1" or bool(
        config.engine.explicit.get("crash_dump_folder")
    )
