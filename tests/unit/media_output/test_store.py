"""Where finished files go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest
from sglang_worker.errors import ConfigError
from sglang_worker.media_output.store import StorageFailed, check_http_url, open_store


async def test_a_file_lands_in_the_folder_and_its_url_leads_to_it(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/media", None)
    url = await store.save(b"pixels", "images", "png")
    path = Path(url.removeprefix("file://"))
    assert path.read_bytes() == b"pixels"
    assert path.parent == tmp_path / "media" / "images" and path.suffix == ".png"


async def test_a_public_address_replaces_the_folder(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/media", "https://cdn.example/media/")
    url = await store.save(b"pixels", "videos", "mp4")
    assert url.startswith("https://cdn.example/media/videos/")
    assert (tmp_path / "media" / url.removeprefix("https://cdn.example/media/")).exists()


async def test_any_file_system_of_fsspec_serves() -> None:
    store = open_store("memory://bucket/folder", None)
    url = await store.save(b"pixels", "images", "png")
    assert url.startswith("memory://") and "/bucket/folder/images/" in url
    assert (
        fsspec.filesystem("memory").cat_file("/bucket" + url.partition("/bucket")[2]) == b"pixels"
    )


async def test_a_failing_file_system_is_one_typed_error(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/media", None)
    (tmp_path / "media" / "images").write_text("in the way")
    with pytest.raises(StorageFailed):
        await store.save(b"pixels", "images", "png")


async def test_names_do_not_repeat(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}", None)
    assert len({await store.save(b"x", "images", "png") for _ in range(5)}) == 5


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nothing://bucket", "Protocol not known"),
        ("file:///", "names no folder"),
        ("s3://user:secret@bucket", "user"),
    ],
)
def test_an_unusable_address_is_a_configuration_error(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(url, None)
    assert "--media-output-fs-url" in str(refused.value)
    assert "secret" not in str(refused.value)
    if said != "user":
        assert said in str(refused.value)


def test_a_folder_that_cannot_be_written_is_found_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="cannot be written to"):
        open_store(f"file://{tmp_path}/file/media", None)


@pytest.mark.parametrize("url", ["cdn.example", "ftp://cdn.example", "https://x/y?z=1", "https://"])
def test_a_public_address_must_be_http(url: Any) -> None:
    with pytest.raises(ConfigError, match="--media-output-http-url"):
        check_http_url(url)
