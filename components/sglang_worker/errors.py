"""Typed errors of the worker and the exit codes that operators see (DESIGN section 2)."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    STOPPED = 0
    RUNTIME_FAILURE = 1
    CONFIGURATION = 2
    SHUTDOWN_WATCHDOG = 70
    ENGINE_DIED = 71


class WorkerError(Exception):
    """Base of the worker's own errors; the message is one clear sentence for the operator."""

    exit_code = ExitCode.RUNTIME_FAILURE


class ConfigError(WorkerError):
    """A flag, variable or file is wrong. The message names it and says what is accepted."""

    exit_code = ExitCode.CONFIGURATION


class StartupCheckError(WorkerError):
    """A fail-closed startup check (runner report, loader-hook parity) did not hold."""


class EngineStartError(WorkerError):
    """SGLang's engine could not be started; the message carries the engine's own reason."""


class RuntimeServerError(WorkerError):
    """Dynamo's runtime came up without the server that answers probes and metrics."""


class EngineDiedError(WorkerError):
    """A scheduler, detokenizer or the engine itself died while serving."""

    exit_code = ExitCode.ENGINE_DIED
