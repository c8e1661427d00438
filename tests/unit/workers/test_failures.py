from __future__ import annotations

import pytest
from dynamo.llm.exceptions import EngineShutdown, HttpError, InvalidArgument
from sglang_worker.requests.errors import EndedByEngine, InvalidRequest, RefusedByEngine
from sglang_worker.workers.failures import to_dynamo


@pytest.mark.parametrize(
    ("failure", "expected", "words"),
    [
        (InvalidRequest("top_p", "too high"), InvalidArgument, "top_p: too high"),
        (RefusedByEngine(400, "bad grammar"), InvalidArgument, "bad grammar"),
        (RefusedByEngine(503, "queue full"), HttpError, "queue full"),
        (EndedByEngine("paused"), EngineShutdown, "paused"),
        (ValueError("SGLang says no"), InvalidArgument, "SGLang says no"),
    ],
)
def test_each_failure_becomes_what_the_frontend_understands(
    failure: Exception, expected: type[Exception], words: str
) -> None:
    raised = to_dynamo(failure)
    assert isinstance(raised, expected)
    assert words in str(raised)
