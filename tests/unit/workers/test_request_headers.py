from __future__ import annotations

from sglang_worker.workers.request_headers import carried_headers


class Context:
    def __init__(self, headers: dict[str, str] | None) -> None:
        self._headers = headers

    def id(self) -> str:
        return "dynamo-id"

    def trace_headers(self) -> dict[str, str] | None:
        return self._headers


def test_the_clients_id_and_trace_are_carried_as_they_came() -> None:
    headers = {"traceparent": "00-a-b-01", "x-request-id": "mine", "request-id": "dynamo-id"}
    assert carried_headers(Context(headers)) == headers


def test_without_a_trace_the_frontends_id_is_carried_alone() -> None:
    assert carried_headers(Context(None)) == {"request-id": "dynamo-id"}
