"""The ports of the runtime's own servers: free before the engine starts, kept so while it does.

The runtime opens its port only when the engine is up, which takes minutes with a large model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.errors import ConfigError
from sglang_worker.system.child_process import keep_out_of_forks
from sglang_worker.system.public_socket import bind_reserved

SETTING = "--metadata-port (DYN_SGL_METADATA_PORT)"


def chosen(config: WorkerConfig) -> range:
    """The ports that the operator gave to this process's runtime, or to those of its gateways."""
    first = config.system.metadata_port
    if config.system.port is None or not first:
        return range(0)
    return range(first, first + max(1, config.gateway_workers))


@contextlib.contextmanager
def held(config: WorkerConfig) -> Iterator[None]:
    """Keep others off the ports while the engine starts. Raises ConfigError when one is taken.

    Bound with SO_REUSEADDR and not listening: the runtime, which sets the option too, opens a port
    all the same, and whoever looks for a free one passes it by.
    """
    with contextlib.ExitStack() as keepers:
        for port in chosen(config):
            try:
                keeper = keepers.enter_context(bind_reserved(config.system.host, port))
            except OSError as failure:
                raise ConfigError(_taken(config, port, failure)) from None
            keep_out_of_forks(keeper)
        yield


def _taken(config: WorkerConfig, port: int, failure: OSError) -> str:
    first, count = config.system.metadata_port, config.gateway_workers
    whose = f", of gateway {port - first}," if count > 1 else ""
    return (
        f"{SETTING}={first}: port {port}{whose} cannot be opened on "
        f"DYN_SYSTEM_HOST={config.system.host}: {failure.strerror or failure}; choose a free one "
        "(0 picks one)"
    )
