"""The guard in front of linear-attention backends: none may be built on an unstamped runner.

SGLang's GDN and KDA constructors read the stamp and fail by themselves; lightning and mamba2 read
none, so a runner that missed `attn_backend_wrapper` would run on unnoticed.
"""

from __future__ import annotations

import logging
from typing import Any

from sglang_worker.errors import StartupCheckError
from sglang_worker.runners import compat
from sglang_worker.runners.families import Family

logger = logging.getLogger(__name__)

# SGLang builds Inkling's short-convolution backend before it stamps, on purpose: not guarded.
_GUARDED = (Family.GDN, Family.KDA, Family.LIGHTNING, Family.MAMBA2)

STANDALONE_SENTENCE = (
    "a linear-attention model cannot be a STANDALONE draft: SGLang gives a draft no "
    "linear-attention backend and crashes capturing the draft graph; use a dense draft of the "
    "same vocabulary, or the target's own MTP weights with --speculative-algorithm NEXTN"
)


class UnstampedRunnerError(StartupCheckError, AttributeError):
    """A linear-attention backend was about to be built on a runner without a stamp."""


class RefusedDraftError(StartupCheckError):
    """A draft that this SGLang cannot run."""


def unstamped(backend: Any, runner: Any) -> str | None:
    """The complaint about building `backend` on `runner`, or None when it may be built."""
    family = compat.backend_family(backend)
    if family not in _GUARDED or compat.read_stamp(runner) is not None:
        return None
    name = "draft" if getattr(runner, "is_draft_worker", False) else "target"
    return (
        f"runner {name}: {type(backend).__name__} is built although the runner has no "
        f"{compat.STAMP_ATTRIBUTE}; the choice of kernels is unknown"
    )


def require_stamp(backend: Any, runner: Any, *, strict: bool) -> str | None:
    """Raises UnstampedRunnerError when strict; else logs and returns the complaint."""
    complaint = unstamped(backend, runner)
    if complaint is None:
        return None
    if strict:
        raise UnstampedRunnerError(complaint)
    logger.warning("%s (allowed by --no-runner-report-strict)", complaint)
    return complaint


def refuse_linear_standalone_draft(runner: Any) -> None:
    """Raises RefusedDraftError before such a draft reaches graph capture."""
    if not getattr(runner, "is_draft_worker", False) or not compat.is_standalone(runner):
        return
    family = compat.config_family(runner.model_config)
    if family is not None:
        model = type(runner.model).__name__
        raise RefusedDraftError(f"draft {model} ({family.value}): {STANDALONE_SENTENCE}")
