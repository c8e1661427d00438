"""The fixture `runner_lab`: one runner lab at a time, started per test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sglang_worker.reference_platform.defaults import process_environment

from tests.engine.runners_lab import RunnerLab

Lab = Callable[..., RunnerLab]
CHAIN = {
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3,
}


# SGLang binds each CPU rank to a core list, and refuses to guess one for several ranks.
THREADS_VARIABLE = "SGLANG_CPU_OMP_THREADS_BIND"
ONE_CORE_EACH = "0|1"


@pytest.fixture(scope="session")
def runner_lab(
    fork_server: None,
    tmp_path_factory: pytest.TempPathFactory,
    checkpoint: Callable[[str], Path],
) -> Iterator[Lab]:
    """Starts an engine; the one before it ends first, so memory holds one at a time."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in process_environment().items():
            environment.setenv(name, value)
        environment.setenv(THREADS_VARIABLE, ONE_CORE_EACH)
        folder = tmp_path_factory.mktemp("labs")
        live: list[RunnerLab] = []

        def start(model: str = "gdn", draft: str = "", **options: Any) -> RunnerLab:
            while live:
                live.pop().close()
            lab_options = {k: options.pop(k) for k in list(options) if k in _LAB_OPTIONS}
            arguments = _arguments(checkpoint(model)) | options
            if draft:
                arguments["speculative_draft_model_path"] = str(checkpoint(draft))
            log = folder / f"{len(list(folder.glob('*.log')))}.log"
            live.append(RunnerLab(arguments, log, **lab_options))
            return live[-1]

        yield start
        while live:
            live.pop().close()


_LAB_OPTIONS = ("twist", "plain_entry", "start_method", "environ")


def _arguments(model: Path) -> dict[str, Any]:
    return {
        "model_path": str(model),
        "skip_tokenizer_init": True,
        "context_length": 512,
        "max_total_tokens": 2048,
        "max_running_requests": 4,
        "max_mamba_cache_size": 16,
        "log_level": "warning",
    }
