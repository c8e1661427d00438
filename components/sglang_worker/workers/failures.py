"""The worker's own failures -> the exceptions that Dynamo's frontend maps to HTTP (FACTS 2)."""

from __future__ import annotations

from sglang_worker.engine import dynamo_compat
from sglang_worker.requests.errors import EndedByEngine, InvalidRequest, RefusedByEngine

BAD_REQUEST = 400
# What has an answer of its own. ValueError: SGLang's validation, for what ours did not foresee.
EXPECTED = (InvalidRequest, RefusedByEngine, EndedByEngine, ValueError)


def to_dynamo(error: Exception) -> Exception:
    """400 for a faulty request, SGLang's status for its refusals, and a migratable error when the
    engine ended a request that was in order."""
    if isinstance(error, InvalidRequest):
        return dynamo_compat.invalid_argument(str(error))
    if isinstance(error, RefusedByEngine):
        # Of HttpError's the client sees the status alone; a 400 must carry its message.
        if error.status == BAD_REQUEST:
            return dynamo_compat.invalid_argument(error.message)
        return dynamo_compat.http_error(error.status, error.message)
    if isinstance(error, EndedByEngine):
        return dynamo_compat.engine_shutdown(str(error))
    return dynamo_compat.invalid_argument(str(error))
