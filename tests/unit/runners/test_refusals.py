from __future__ import annotations

import pytest
from sglang_worker.runners.refusals import version_refusal


@pytest.mark.parametrize("version", ["0.5.20", "0.5.21", "0.5.23", "0.5.23.post1", "0.5.22rc1"])
def test_an_sglang_inside_the_range_is_accepted(version: str) -> None:
    assert version_refusal(version) is None


@pytest.mark.parametrize("version", ["0.5.19", "0.4.99", "0.5.24", "0.6.0", "1.0.0"])
def test_an_sglang_outside_the_range_is_refused_with_both_numbers(version: str) -> None:
    refusal = version_refusal(version)
    assert refusal is not None
    assert version in refusal
    assert ">=0.5.20,<0.5.24" in refusal


def test_an_sglang_without_a_release_number_is_refused() -> None:
    refusal = version_refusal("unknown")
    assert refusal is not None
    assert "'unknown'" in refusal
