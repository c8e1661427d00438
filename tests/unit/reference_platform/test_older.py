"""What the CPU platform refuses on a SGLang that is older than the locked one."""

from __future__ import annotations

import pytest
from sglang_worker.errors import ConfigError
from sglang_worker.reference_platform import older


class Arguments:
    def __init__(self, algorithm: str | None) -> None:
        self.speculative_algorithm = algorithm


def test_speculation_is_refused_by_name_where_its_steps_cannot_be_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(older, "is_older", lambda: True)
    older.refuse_speculation(Arguments(None))
    with pytest.raises(ConfigError, match="NEXTN does not run on the CPU reference platform"):
        older.refuse_speculation(Arguments("NEXTN"))


def test_nothing_is_refused_or_changed_on_the_locked_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(older, "is_older", lambda: False)
    older.refuse_speculation(Arguments("NEXTN"))
    assert older.engine_defaults() == {}
    assert older.replacements() == {}
