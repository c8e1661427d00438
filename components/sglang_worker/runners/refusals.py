"""What is refused before the engine starts: an SGLang outside the range, an impossible draft."""

from __future__ import annotations

import re
from typing import Any

from sglang_worker.errors import ConfigError
from sglang_worker.runners import compat
from sglang_worker.runners.guard import STANDALONE_SENTENCE

SUPPORTED_FROM = (0, 5, 20)
SUPPORTED_BELOW = (0, 5, 24)


def version_refusal(version: str) -> str | None:
    """Why this SGLang cannot be used, or None; development suffixes don't count."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if match is None:
        return f"SGLang reports the version {version!r}, which is no release number"
    numbers = tuple(int(part) for part in match.groups())
    if SUPPORTED_FROM <= numbers < SUPPORTED_BELOW:
        return None
    span = ">=" + _dotted(SUPPORTED_FROM) + ",<" + _dotted(SUPPORTED_BELOW)
    return f"SGLang {version} is outside the supported range {span}; install one inside it"


def refuse_unsupported_sglang() -> None:
    """Raises ConfigError naming the installed SGLang and the supported range."""
    import sglang

    refusal = version_refusal(sglang.__version__)
    if refusal is not None:
        raise ConfigError(refusal)


def refuse_linear_standalone_draft(server_args: Any) -> None:
    """Raises ConfigError for a linear-attention STANDALONE draft; reads the draft's config.json.

    The scheduler's own guard refuses it again when the draft's runner is built.
    """
    algorithm = (server_args.speculative_algorithm or "").upper()
    path = server_args.speculative_draft_model_path
    if algorithm != "STANDALONE" or path is None:
        return
    config = compat.draft_model_config(server_args)
    family = compat.config_family(config)
    if family is not None:
        architecture = config.hf_config.architectures[0]
        raise ConfigError(
            f"--speculative-draft-model-path {path}: {architecture} ({family.value}): "
            f"{STANDALONE_SENTENCE}"
        )


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
