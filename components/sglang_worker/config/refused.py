"""Flags and variables that this worker knows and refuses, each with the reason.

They would otherwise be "unknown", or worse, be passed to SGLang and silently do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sglang_worker.config.booleans import parse_boolean
from sglang_worker.errors import ConfigError

ENCODE_ROLE = "use --enable-multimodal --disaggregation-mode encode"
INTERNAL_ROLE = (
    "use --enable-multimodal --dedicated-mm-encoder with --disaggregation-mode pd, prefill or "
    "decode"
)


class Refused(msgspec.Struct, frozen=True):
    """``switch``: a false variable and the ``--no-`` form are harmless and accepted."""

    reason: str
    flag: str | None = None
    variable: str | None = None
    switch: bool = True


REFUSED: tuple[Refused, ...] = (
    Refused(
        flag="--rerank-worker",
        variable="DYN_SGL_RERANK_WORKER",
        reason="reranking is not served by this worker; run upstream's dynamo.sglang for it",
    ),
    Refused(
        flag="--enable-rl",
        variable="DYN_SGL_ENABLE_RL",
        reason="uploads of RL metadata are not served by this worker; expose the weight-update "
        "methods that the trainer calls with --engine-route instead",
    ),
    Refused(
        flag="--multimodal-encode-worker",
        variable="DYN_SGL_MULTIMODAL_ENCODE_WORKER",
        reason=f"it was removed from Dynamo; {ENCODE_ROLE}",
    ),
    Refused(
        flag="--multimodal-worker",
        variable="DYN_SGL_MULTIMODAL_WORKER",
        reason=f"it was removed from Dynamo; {INTERNAL_ROLE}",
    ),
    Refused(
        flag="--multimodal-processor",
        variable="DYN_SGL_MULTIMODAL_PROCESSOR",
        reason=f"it was removed from Dynamo; {ENCODE_ROLE}",
    ),
    Refused(
        flag="--default-chat-template-kwargs",
        reason="it belongs on the frontend (python -m dynamo.frontend "
        "--default-chat-template-kwargs ...), which renders the chat template; on the worker it "
        "would have no effect",
        switch=False,
    ),
    Refused(
        flag="--schedule-low-priority-values-first",
        reason="Dynamo's API defines higher values as higher priority",
    ),
    Refused(
        variable="DYN_SNAPSHOT_CONTROL_DIR",
        reason="snapshot capture and restore are not served by this worker; unset it",
        switch=False,
    ),
    Refused(
        variable="DYN_GMS_USE_V1",
        reason="the GPU memory service is not served by this worker; unset it",
    ),
)


def check_refused(argv: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise ConfigError for the first refused flag or variable."""
    names = {token.split("=", 1)[0].replace("_", "-") for token in argv if token.startswith("--")}
    for entry in REFUSED:
        if entry.flag is not None and entry.flag in names:
            raise ConfigError(f"{entry.flag} is refused: {entry.reason}")
        if entry.variable is not None and _is_set(entry, environ):
            raise ConfigError(f"{entry.variable} is refused: {entry.reason}")


def check_refused_dests(explicit: Mapping[str, object]) -> None:
    """The same for SGLang flags that came from a file or an abbreviation."""
    for entry in REFUSED:
        if entry.flag is None:
            continue
        value = explicit.get(entry.flag.removeprefix("--").replace("-", "_"))
        if value not in (None, False):
            raise ConfigError(f"{entry.flag} is refused: {entry.reason}")


def without_harmless(argv: Sequence[str]) -> tuple[str, ...]:
    """``argv`` without the ``--no-`` forms of refused switches."""
    harmless = {f"--no-{entry.flag[2:]}" for entry in REFUSED if entry.flag and entry.switch}
    return tuple(token for token in argv if token not in harmless)


def _is_set(entry: Refused, environ: Mapping[str, str]) -> bool:
    text = environ.get(str(entry.variable), "")
    if not entry.switch:
        return bool(text.strip())
    return parse_boolean(str(entry.variable), text)
