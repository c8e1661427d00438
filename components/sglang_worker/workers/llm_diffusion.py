"""Diffusion language models: token generation in blocks that a `--dllm-algorithm` denoises."""

from __future__ import annotations

from typing import Any

from sglang_worker.requests.llm_diffusion import refuse_impossible
from sglang_worker.requests.mapping import GenerateCall
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.decode import Variant, token_worker
from sglang_worker.workers.generate_handler import GenerateHandler
from sglang_worker.workers.service import WorkerService


def build(context: WorkerContext) -> WorkerService:
    return token_worker(context, Variant(handler=DiffusionHandler))


class DiffusionHandler(GenerateHandler):
    """As every token handler; what SGLang would leave unanswered is refused first."""

    def _map(self, request: Any, probe: bool) -> GenerateCall:
        call = super()._map(request, probe)
        refuse_impossible(call)
        return call
