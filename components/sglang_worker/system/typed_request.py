"""SGLang's request objects from JSON bodies; every wrong field is a 400 that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_worker.system.conversion import Mismatch, RecordField, convert, record_fields
from sglang_worker.system.faults import BadRequest

# Routing fields that SGLang's own processes fill in: a caller could misdirect answers with them.
_INTERNAL = frozenset({"http_worker_ipc", "http_worker_ipcs"})


class TypedRequest:
    """Builds one dataclass or msgspec request class."""

    def __init__(self, record: type) -> None:
        self.record = record
        self.fields: dict[str, RecordField] = {
            name: field for name, field in record_fields(record).items() if name not in _INTERNAL
        }

    def arguments(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body's values, checked and converted. Raises BadRequest naming all wrong fields."""
        return checked_arguments(body, self.fields, "field")

    def build(self, body: Mapping[str, Any]) -> Any:
        """An instance; faults that its own constructor finds are the caller's too."""
        arguments = self.arguments(body)
        try:
            return self.record(**arguments)
        except (TypeError, ValueError, AssertionError) as error:
            raise BadRequest(f"{self.record.__name__}: {error}") from None


def checked_arguments(
    body: Mapping[str, Any],
    fields: Mapping[str, RecordField],
    word: str,
    *,
    accepts_more: bool = False,
) -> dict[str, Any]:
    """Check names and types of ``body`` against ``fields``; ``word`` is field or keyword."""
    faults: list[str] = []
    values: dict[str, Any] = {}
    for name, value in body.items():
        field = fields.get(name)
        if field is None:
            if accepts_more:
                values[name] = value
            else:
                faults.append(f"unknown {word} {name!r}")
            continue
        try:
            values[name] = convert(value, field.annotation, name)
        except Mismatch as mismatch:
            faults.append(f"{word} {mismatch}")
    faults += [
        f"missing {word} {name!r}"
        for name, field in fields.items()
        if field.required and name not in body
    ]
    if faults:
        raise BadRequest("; ".join(faults))
    return values
