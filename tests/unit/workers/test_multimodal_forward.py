"""How an internal worker's failures reach the frontend through an encode worker.

The texts are what the runtime's client raised for each kind of exception in a handler.
"""

from __future__ import annotations

import pytest
from dynamo.llm import exceptions
from sglang_worker.engine.dynamo_compat_forward import relayed


@pytest.mark.parametrize(
    ("arrived", "kind", "text"),
    [
        (ValueError("Unavailable: late"), exceptions.Disconnected, "late"),
        (Exception("Unavailable: No workers available"), exceptions.Disconnected, "No workers"),
        (ValueError("Cancelled: c"), exceptions.Cancelled, "c"),
        (ValueError("InvalidRequest: ValueError: bad"), exceptions.InvalidArgument, "bad"),
        (ValueError("Internal: RuntimeError: boom"), RuntimeError, "boom"),
        (ValueError('Unavailable: {"message":"busy","code":503}'), exceptions.HttpError, "busy"),
        (ValueError('RateLimited: {"message":"q","code":429}'), exceptions.HttpError, "q"),
    ],
)
def test_each_kind_keeps_its_meaning(arrived: Exception, kind: type[Exception], text: str) -> None:
    found = relayed(arrived)
    assert type(found) is kind
    assert text in str(found)


def test_a_status_survives() -> None:
    found = relayed(ValueError('RateLimited: {"message":"q","code":429}'))
    assert isinstance(found, exceptions.HttpError)
    assert found.code == 429


def test_a_refused_request_arrives_as_it_was_refused() -> None:
    refused = exceptions.InvalidArgument("max_tokens: too many")
    assert relayed(refused) is refused


def test_an_unknown_failure_stays_what_it_is() -> None:
    strange = OSError("what: ever")
    assert relayed(strange) is strange
