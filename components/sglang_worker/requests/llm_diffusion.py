"""What a diffusion language model cannot do for a request. Pure; raises `InvalidRequest`.

Found by trying SGLang 0.5.23 (LowConfidence on SDAR): a request with a grammar never enters a batch
and so never ends; log-probabilities stay empty; and no sampler runs that could hold an
end-of-sequence token back. Options that only steer a sampler (temperature, penalties, seed …) are
ignored by SGLang and accepted here, because every OpenAI client sends some.
"""

from __future__ import annotations

from collections.abc import Mapping

from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.mapping import GenerateCall

REASON = "is not possible with a diffusion language model, which fills whole blocks of tokens"

# SGLang's sampling parameter -> the name that the client knows.
_REFUSED: Mapping[str, str] = {
    "json_schema": "guided_json",
    "regex": "guided_regex",
    "ebnf": "guided_grammar",
    "structural_tag": "guided_structural_tag",
    "min_new_tokens": "min_tokens",
    "custom_params": "thinking_token_budget",
}


def refuse_impossible(call: GenerateCall) -> None:
    if call.logprobs.top is not None:
        raise InvalidRequest("logprobs", REASON)
    if call.logprobs.prompt is not None:
        raise InvalidRequest("prompt_logprobs", REASON)
    for parameter in call.fields["sampling_params"]:
        if parameter in _REFUSED:
            raise InvalidRequest(_REFUSED[parameter], REASON)
