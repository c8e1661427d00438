"""What is refused before the engine starts: a draft that SGLang cannot run."""

from __future__ import annotations

from typing import Any

from sglang_worker.errors import ConfigError
from sglang_worker.runners import compat
from sglang_worker.runners.guard import STANDALONE_SENTENCE


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
