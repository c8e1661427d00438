"""docs/flags.md is what the tables say."""

from __future__ import annotations

from pathlib import Path

from sglang_worker.config.flag_docs import page
from sglang_worker.config.flags import OWN_FLAGS

DOCS = Path(__file__).resolve().parents[3] / "docs" / "flags.md"


def test_the_page_is_in_sync_with_the_tables() -> None:
    assert DOCS.read_text() == page(), (
        "run: python -m sglang_worker.config.flag_docs > docs/flags.md"
    )


def test_every_own_flag_and_variable_is_on_the_page() -> None:
    text = page()
    for flag in OWN_FLAGS:
        assert all(f"`{name}`" in text for name in (flag.name, flag.variable) if name)
