"""The synchronous half of a start: from the command line to a running engine.

No thread and no event loop exists yet, so the engine's processes may be forked and a signal can
simply raise in the main thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

import msgspec

from sglang_worker.config import environment, platform
from sglang_worker.config.dump import dump_config
from sglang_worker.config.parse import parse_worker_config
from sglang_worker.config.server_args import build_server_args
from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.engine.launch import WorkerEngine, start_engine
from sglang_worker.redaction import hide_in_logs, secret_values
from sglang_worker.workers.table import check_served

logger = logging.getLogger(__name__)


class Started(msgspec.Struct, frozen=True):
    config: WorkerConfig
    engine: WorkerEngine


def configure(argv: Sequence[str], environ: Mapping[str, str]) -> WorkerConfig:
    """Everything that can be wrong before a model is opened; raises ConfigError."""
    environment.prepare(environ)
    config = parse_worker_config(argv, environ)
    check_served(config.worker_type)
    return config


def start(config: WorkerConfig) -> Started:
    """Apply the environment and start the engine."""
    environment.apply(config)
    for notice in config.notices:
        logger.warning("%s", notice)
    hide_in_logs(secret_values(config.engine.explicit))
    server_args = build_server_args(config)
    dump_config(config, server_args)
    engine = start_engine(config, server_args, prefer_fork=platform.is_active(os.environ))
    logger.info("engine ready in %.1f s", engine.started_in_s)
    return Started(config, engine)
