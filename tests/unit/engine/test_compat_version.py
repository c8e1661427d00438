from __future__ import annotations

import pytest
from sglang_worker.engine.compat import check_version, parse_version
from sglang_worker.errors import ConfigError


@pytest.mark.parametrize("version", ["0.5.20", "0.5.21", "0.5.23", "0.5.23.post1", "0.5.23rc1"])
def test_supported_releases_pass(version: str) -> None:
    assert check_version(version) == version


@pytest.mark.parametrize("version", ["0.5.19", "0.5.24", "0.6.0", "1.0", "nonsense"])
def test_another_release_is_a_clear_error(version: str) -> None:
    with pytest.raises(ConfigError, match=r"sglang>=0\.5\.20,<0\.5\.24"):
        check_version(version)


def test_only_the_numbers_of_a_version_count() -> None:
    assert parse_version("0.5.23.post1+cu130") == (0, 5, 23)
    assert parse_version("0.5.23rc1") == (0, 5, 23)
    assert parse_version("dev") == ()
