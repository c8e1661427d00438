"""The stage that gets the content of media, steered: hang-ups, the worker's end, budgets."""

from __future__ import annotations

import asyncio
import base64
import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image
from sglang_worker.engine import compat_multimodal, compat_video
from sglang_worker.media.errors import MediaBusy, MediaError
from sglang_worker.media.load import MediaLoader
from sglang_worker.media.settings import MediaSettings
from sglang_worker.requests.errors import EndedByEngine, InvalidRequest, RefusedByEngine
from sglang_worker.requests.multimodal import MediaSupport
from sglang_worker.workers.media_stage import ClientGone, PreparedMedia, failure_of
from sglang_worker.workers.multimodal_media import RawMedia, explain

SETTINGS = MediaSettings()


def image_uri(side_pixels: int = 8) -> str:
    target = io.BytesIO()
    Image.effect_noise((side_pixels, side_pixels), 90).save(target, "PNG")
    return "data:image/png;base64," + base64.b64encode(target.getvalue()).decode()


class Client:
    """A context whose client can hang up."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[bool]] = []

    def async_killed_or_stopped(self) -> asyncio.Future[bool]:
        self._waiting.append(asyncio.get_running_loop().create_future())
        return self._waiting[-1]

    def hang_up(self) -> None:
        for one in self._waiting:
            if not one.done():
                one.set_result(True)


class SlowFetcher:
    """Downloads that end when the test says so."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def fetch(self, url: str) -> bytes:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b""


def stage(settings: MediaSettings = SETTINGS, fetcher: Any = None) -> RawMedia:
    return RawMedia(MediaLoader(settings, fetcher), MediaSupport())


def request(*urls: str) -> dict[str, Any]:
    return {"multi_modal_data": {"image_url": [{"Url": url} for url in urls]}}


async def test_sglang_gets_bytes_in_the_order_of_the_parts() -> None:
    small, large = image_uri(8), image_uri(64)
    prepared = await stage().prepare(request(small, large), Client())
    first, second = prepared.fields["image_data"]
    assert len(first) < len(second)
    assert first.startswith(b"\x89PNG")


async def test_the_faulty_one_of_several_parts_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"image_url\[1\]: is not an image"):
        await stage().prepare(request(image_uri(), "data:;base64,AAAA"), Client())


async def test_all_parts_together_have_a_bound() -> None:
    uri = image_uri(32)
    size_bytes = len(base64.b64decode(uri.partition(",")[2]))
    bounded = stage(replace(SETTINGS, max_bytes=size_bytes))
    assert len((await bounded.prepare(request(*[uri] * 4), Client())).fields["image_data"]) == 4
    with pytest.raises(InvalidRequest, match="all media of the request"):
        await bounded.prepare(request(*[uri] * 5), Client())


async def test_all_images_together_have_a_bound_on_what_they_decode_to() -> None:
    """Kilobytes each, gigabytes once SGLang has decoded them side by side."""
    uri = image_uri(32)
    bounded = stage(replace(SETTINGS, max_pixels=32 * 32))
    assert len((await bounded.prepare(request(*[uri] * 4), Client())).fields["image_data"]) == 4
    with pytest.raises(InvalidRequest, match="all images of the request exceed 4096 pixels"):
        await bounded.prepare(request(*[uri] * 5), Client())


@pytest.fixture(scope="module", autouse=True)
def decoder_is_loaded() -> None:
    """As in a worker, whose engine loaded it: that takes longer than a request may wait."""
    assert compat_video.has_video_decoder()


def video_uri(frames: int, side_pixels: int) -> str:
    import imageio.v3

    pixels = np.random.default_rng(1).integers(0, 255, (frames, side_pixels, side_pixels, 3))
    content = imageio.v3.imwrite(
        "<bytes>", pixels.astype(np.uint8), extension=".mp4", plugin="FFMPEG", fps=4
    )
    return "data:video/mp4;base64," + base64.b64encode(content).decode()


def videos(*urls: str) -> dict[str, Any]:
    return {"multi_modal_data": {"video_url": [{"Url": url} for url in urls]}}


async def test_the_frames_that_are_decoded_of_all_videos_have_a_bound() -> None:
    """12 frames in 3 s: SGLang decodes 6 of them."""
    uri = video_uri(12, 64)
    bounded = stage(replace(SETTINGS, max_video_pixels=2 * 6 * 64 * 64))
    fields = (await bounded.prepare(videos(uri, uri), Client())).fields
    assert [type(one) for one in fields["video_data"]] == [bytes, bytes]
    with pytest.raises(InvalidRequest, match=r"video_url\[\d\]: the frames read .* 49152 pixels"):
        await bounded.prepare(videos(uri, uri, uri), Client())


async def test_frames_that_are_only_skipped_have_a_bound() -> None:
    uri = video_uri(12, 64)
    bounded = stage(replace(SETTINGS, max_walked_pixels=12 * 64 * 64))
    await bounded.prepare(videos(uri), Client())
    with pytest.raises(InvalidRequest, match=r"video_url\[\d\]: all frames .* 49152 pixels"):
        await bounded.prepare(videos(uri, uri), Client())


async def test_a_large_frame_is_refused_before_one_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a decoder was opened")

    monkeypatch.setattr(compat_video, "_opened", never)
    bounded = stage(replace(SETTINGS, max_frame_pixels=64 * 64 - 1))
    with pytest.raises(InvalidRequest, match=r"video_url\[0\]: a frame has more than the 4095 pix"):
        await bounded.prepare(videos(video_uri(4, 64)), Client())


async def test_a_video_of_one_frame_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"video_url\[0\]: .* at least 2 frames, it has 1"):
        await stage().prepare(videos(video_uri(1, 64)), Client())


async def test_requests_share_the_room_for_frames_until_they_are_processed() -> None:
    uri = video_uri(4, 64)
    shared = stage(replace(SETTINGS, max_video_pixels=4 * 64 * 64, place_timeout_s=0.05))
    first = await shared.prepare(videos(uri), Client())
    with pytest.raises(RefusedByEngine, match=r"video_url\[0\]: no room") as refused:
        await shared.prepare(videos(uri), Client())
    assert refused.value.status == 503
    first.release()
    (await shared.prepare(videos(uri), Client())).release()


@pytest.mark.parametrize("uri", ["data:video/mp4;base64,AAAAAAAA", image_uri()])
async def test_what_is_no_video_is_named(uri: str) -> None:
    with pytest.raises(InvalidRequest, match=r"video_url\[1\]: cannot be decoded as video"):
        await stage().prepare(videos(video_uri(4, 64), uri), Client())


class FrontendImages:
    """Stands for `FrontendPixels`: the transfer needs NIXL and a frontend."""

    async def load(self, kind: str, description: Any) -> Image.Image:
        return Image.new("RGB", tuple(description["size"]))


async def test_images_that_the_frontend_decoded_count_too() -> None:
    bounded = RawMedia(
        MediaLoader(replace(SETTINGS, max_pixels=32 * 32)),
        MediaSupport(frontend_decoding=True),
        FrontendImages(),  # type: ignore[arg-type]
    )
    part = {"Decoded": {"size": [32, 32]}}
    four, five = ({"multi_modal_data": {"image_url": [part] * count}} for count in (4, 5))
    assert len((await bounded.prepare(four, Client())).fields["image_data"]) == 4
    with pytest.raises(InvalidRequest, match="all images of the request exceed 4096 pixels"):
        await bounded.prepare(five, Client())


class FullFetcher:
    async def fetch(self, url: str) -> bytes:
        raise MediaBusy("no place for one more download")


async def test_no_room_for_a_download_is_not_the_clients_fault() -> None:
    with pytest.raises(RefusedByEngine, match=r"image_url\[1\]: no place") as refused:
        await stage(fetcher=FullFetcher()).prepare(
            request(image_uri(), "http://x.test/a"), Client()
        )
    assert refused.value.status == 503


async def test_all_parts_together_have_a_time() -> None:
    fetcher = SlowFetcher()
    bounded = stage(replace(SETTINGS, request_timeout_s=0.05), fetcher)
    with pytest.raises(InvalidRequest, match=r"messages: .* within 0\.05 s"):
        await bounded.prepare(request(image_uri(), "http://x.test/a"), Client())
    await fetcher.cancelled.wait()


async def test_a_client_that_hangs_up_ends_its_downloads() -> None:
    fetcher, client = SlowFetcher(), Client()
    waiting = asyncio.ensure_future(
        stage(fetcher=fetcher).prepare(request("http://x.test/a", image_uri()), client)
    )
    await fetcher.started.wait()
    client.hang_up()
    with pytest.raises(ClientGone):
        await waiting
    await fetcher.cancelled.wait()


async def test_the_end_of_the_worker_sends_the_request_elsewhere() -> None:
    fetcher = SlowFetcher()
    slow = stage(fetcher=fetcher)
    waiting = asyncio.ensure_future(slow.prepare(request("http://x.test/a"), Client()))
    await fetcher.started.wait()
    slow.fail_all()
    with pytest.raises(EndedByEngine):
        await waiting
    await fetcher.cancelled.wait()


def test_what_sglang_cannot_decode_is_the_clients_fault_and_named() -> None:
    text = "An exception occurred while loading IMAGE data at index 2: Error while loading data b''"
    explained = explain(RuntimeError(text))
    assert isinstance(explained, InvalidRequest)
    assert str(explained) == "image_url[2]: cannot be decoded as image"
    other = RuntimeError("out of memory")
    assert explain(other) is other


class Executor:
    """SGLang's, as far as a call goes: in a thread, the result in a future of the loop."""

    async def run(self, function: Any, *arguments: Any, **options: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


async def test_a_processor_that_runs_out_of_media_ends_the_request() -> None:
    manager = SimpleNamespace(mm_processor=SimpleNamespace(mm_processor_executor=Executor()))
    compat_multimodal.end_stop_iterations(manager)
    executor = manager.mm_processor.mm_processor_executor
    assert await executor.run(max, [1, 2]) == 2
    with pytest.raises(ValueError, match="more media than there are parts") as raised:
        await asyncio.wait_for(executor.run(next, iter(())), 10)
    assert str(explain(raised.value)).startswith("messages: ")


def test_a_fault_of_the_worker_stays_one() -> None:
    fault = RuntimeError("out of memory")
    assert failure_of(fault, PreparedMedia(fields={}, explain=explain)) is fault
    assert failure_of(fault, None) is fault
    assert failure_of(ValueError("prompt too long"), None) is not fault


def test_media_errors_are_not_the_workers_errors() -> None:
    assert not issubclass(MediaError, ValueError)
