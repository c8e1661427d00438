"""Where finished files go."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest
from sglang_worker.errors import ConfigError
from sglang_worker.media_output.store import (
    WRITES_AT_ONCE,
    MediaStore,
    StorageFailed,
    check_http_url,
    open_store,
)

from tests.support.wait import wait_until_async


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


class Hanging:
    """A file system that has stopped answering."""

    def __init__(self) -> None:
        self.back = threading.Event()

    def makedirs(self, path: str, exist_ok: bool) -> None:
        self.back.wait()

    def pipe_file(self, path: str, content: bytes) -> None:
        """Taken."""


async def test_storage_that_hangs_ends_in_an_error_and_holds_up_nothing_else() -> None:
    system = Hanging()
    store = MediaStore(system, "bucket", "https://cdn.example", timeout_s=0.05)
    try:
        writes = [store.save(b"pixels", "images", "png") for _ in range(WRITES_AT_ONCE)]
        for failure in await asyncio.gather(*writes, return_exceptions=True):
            assert isinstance(failure, StorageFailed)
            assert "not written within 0.05 s" in str(failure)
        assert await asyncio.to_thread(lambda: "a thread is free") == "a thread is free"
        with pytest.raises(StorageFailed, match=f"{WRITES_AT_ONCE} calls .* have not returned"):
            await store.save(b"pixels", "images", "png")
    finally:
        system.back.set()
    await wait_until_async(lambda: store.hanging == 0, "the storage answers again")
    assert (await store.save(b"pixels", "images", "png")).startswith("https://cdn.example/images/")


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
