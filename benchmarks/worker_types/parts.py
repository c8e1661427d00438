"""What is asked of a kind of worker, and what must be true of the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from benchmarks.worker_types import pictures, texts, vectors
from benchmarks.worker_types.bare import Call
from tests.support.client import OpenAIClient
from tests.support.stack import Frontend

NAME = "gpu"
Row = dict[str, Any]
FIRST_ANSWER_S = 60.0


class Part(msgspec.Struct, frozen=True):
    """``calls``: the same questions for a bare engine. ``ask``: through the frontend; may write
    into the row. ``settle``: sets answers beside a bare engine's, writes the result into the row
    and returns what must not be, in words."""

    model_name: str
    calls: Callable[[], list[Call]]
    ask: Callable[[Frontend, Row], list[Any]]
    settle: Callable[[Row, list[Any], list[Any]], list[str]]


def embedding(*, shortened: bool) -> Part:
    questions = vectors.questions(shortened=shortened)

    def ask(frontend: Frontend, _: Row) -> list[Any]:
        return [vectors.ask(frontend.client, NAME, one) for one in questions.values()]

    def settle(row: Row, found: list[Any], expected: list[Any]) -> list[str]:
        rows = zip(questions, found, expected, strict=True)
        row["vectors"] = {name: vectors.compare(one, other) for name, one, other in rows}
        return vectors.faults(row["vectors"])

    return Part(NAME, lambda: [one.call() for one in questions.values()], ask, settle)


def completion() -> Part:
    def ask(frontend: Frontend, row: Row) -> list[Any]:
        found = _ask_texts(frontend.client)
        again = _ask_texts(frontend.client)
        row["same_when_asked_again"] = sum(a == b for a, b in zip(found, again, strict=True))
        return found

    def settle(row: Row, found: list[Any], expected: list[Any]) -> list[str]:
        row["texts"] = texts.compare(found, expected)
        return texts.faults(row["texts"])

    return Part(NAME, lambda: [one.call() for one in texts.QUESTIONS], ask, settle)


def _ask_texts(client: OpenAIClient) -> list[Any]:
    return [texts.ask(client, NAME, one) for one in texts.QUESTIONS]


def images() -> Part:
    def ask(frontend: Frontend, row: Row) -> list[Any]:
        frontend.wait_for(
            lambda: pictures.is_answering(frontend.client),
            "the model answers",
            deadline_s=FIRST_ANSWER_S,
        )
        row["answers"] = pictures.ask_all(frontend.client)
        row["refusals"] = pictures.refusals(frontend.client)
        return list(row["answers"])

    def settle(row: Row, found: list[Any], expected: list[Any]) -> list[str]:
        row["reference"] = expected
        row["agreement"] = pictures.compare(found, expected)
        return pictures.faults(row)

    return Part(pictures.MODEL, pictures.calls, ask, settle)
