"""Data URIs as clients write them, and as they should not."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from sglang_worker.media.data_uri import decode, is_data_uri
from sglang_worker.media.errors import MediaError

CONTENT = bytes(range(256))
ENCODED = base64.b64encode(CONTENT).decode()


@pytest.mark.parametrize(
    "uri",
    [
        f"data:image/png;base64,{ENCODED}",
        f"DATA:image/png;charset=x;BASE64,{ENCODED}",
        f"data:;base64,{quote(ENCODED)}",
        f"data:image/png;base64,{ENCODED[:40]}\n{ENCODED[40:]}",
        f"data:application/octet-stream,{quote(CONTENT)}",
    ],
)
def test_all_spellings_of_a_data_uri_have_the_same_content(uri: str) -> None:
    assert is_data_uri(uri)
    assert decode(uri, 10_000) == CONTENT


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("data:image/png;base64", "comma"),
        ("data:image/png;base64,", "empty"),
        ("data:image/png;base64,AAA", "base64"),
        ("data:image/png;base64,$$$$", "base64"),
        ("data:image/png;base64,äöü=", "ASCII"),
        (f"data:image/png;base64,{ENCODED * 40}", "longer than 10000"),
    ],
)
def test_a_faulty_data_uri_is_refused_with_its_reason(uri: str, reason: str) -> None:
    with pytest.raises(MediaError, match=reason) as refused:
        decode(uri, 10_000)
    assert ENCODED[:30] not in str(refused.value)
