"""Bodies of configured generation routes: what would end SGLang's schedulers is refused by name.

The frontend's requests are checked in `requests/`; a route to ``generate`` does not pass there, and
SGLang takes ``sampling_params`` as an untyped dictionary, whose values its scheduler decodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.sampling import sampling_fields
from sglang_worker.requests.validation import integer, require_in_vocabulary
from sglang_worker.system.conversion import RecordField
from sglang_worker.system.faults import BadRequest
from sglang_worker.system.typed_request import checked_arguments

# SGLang keeps it as a 32-bit number.
_TOP_K_LIMIT = 1 << 30


def check_generation(
    values: Mapping[str, Any], vocab_size: int, sampling: Mapping[str, RecordField]
) -> None:
    """``vocab_size`` 0 and an empty ``sampling``: unknown, not checked. Raises BadRequest."""
    try:
        _check_prompt(values, vocab_size)
        _check_logprobs(values, vocab_size)
        for where, params in _batch(values.get("sampling_params"), "sampling_params", Mapping):
            _check_sampling(params, where, vocab_size, sampling)
    except InvalidRequest as fault:
        raise BadRequest(str(fault)) from None


def _check_prompt(values: Mapping[str, Any], vocab_size: int) -> None:
    for where, text in _batch(values.get("prompt"), "prompt", str):
        if not text:
            raise BadRequest(f"{where}: must not be empty")
    ids = values.get("input_ids")
    rows = [("input_ids", ids)]
    if ids and isinstance(ids[0], list):
        rows = [(f"input_ids[{index}]", row) for index, row in enumerate(ids)]
    for where, row in rows:
        if row is None:
            continue
        if not row:
            raise BadRequest(f"{where}: must not be empty")
        if vocab_size:
            require_in_vocabulary(row, where, vocab_size)


def _check_logprobs(values: Mapping[str, Any], vocab_size: int) -> None:
    for where, top in _batch(values.get("top_logprobs_num"), "top_logprobs_num", int):
        integer({where: top}, where, low=0, high=vocab_size or None)
    for where, start in _batch(values.get("logprob_start_len"), "logprob_start_len", int):
        integer({where: start}, where, low=-1)


def _check_sampling(
    params: Mapping[str, Any], where: str, vocab_size: int, sampling: Mapping[str, RecordField]
) -> None:
    given = {name: value for name, value in params.items() if value is not None}
    if sampling:
        checked_arguments(given, sampling, f"{where} field")
    sampling_fields(given)
    if given.get("top_k", 0) > _TOP_K_LIMIT:
        raise BadRequest(f"{where}.top_k: must be at most {_TOP_K_LIMIT}")
    if vocab_size:
        stop_ids = given.get("stop_token_ids") or []
        require_in_vocabulary(stop_ids, f"{where}.stop_token_ids", vocab_size)


def _batch(value: Any, name: str, one: type) -> list[tuple[str, Any]]:
    """A single value or each of a list, with its place."""
    if value is None:
        return []
    if isinstance(value, one):
        return [(name, value)]
    return [(f"{name}[{index}]", item) for index, item in enumerate(value)]
