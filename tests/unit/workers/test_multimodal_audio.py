"""Clips of sound in the stage that gets the content of media: form, bounds, room, refusals."""

from __future__ import annotations

import base64
import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
from msgspec.structs import replace
from sglang_worker.engine import compat_multimodal
from sglang_worker.media import audio
from sglang_worker.media.load import MediaLoader
from sglang_worker.media.settings import MediaSettings
from sglang_worker.requests.errors import InvalidRequest, RefusedByEngine
from sglang_worker.requests.multimodal import MediaSupport
from sglang_worker.workers.multimodal_media import RawMedia, explain

from tests.unit.workers.test_multimodal_media import Client

SETTINGS = MediaSettings()
RATE_HZ = 16_000


def content_of(seconds: float = 0.5, form: str = "FLAC") -> bytes:
    samples = np.random.default_rng(1).uniform(-0.5, 0.5, int(seconds * RATE_HZ))
    target = io.BytesIO()
    soundfile.write(target, samples, RATE_HZ, format=form)
    return target.getvalue()


def uri(content: bytes) -> str:
    return "data:audio/flac;base64," + base64.b64encode(content).decode()


def stage(settings: MediaSettings = SETTINGS) -> RawMedia:
    return RawMedia(MediaLoader(settings), MediaSupport())


def clips(*urls: str) -> dict[str, Any]:
    return {"multi_modal_data": {"audio_url": [{"Url": url} for url in urls]}}


async def test_sglang_gets_wav_in_the_order_of_the_parts() -> None:
    short, long = content_of(0.2), content_of(1)
    prepared = await stage().prepare(clips(uri(short), uri(long)), Client())
    assert prepared.fields == {
        "audio_data": [audio.as_wav(one, audio.clip_facts(one)) for one in (short, long)]
    }
    prepared.release()


async def test_all_clips_of_a_request_together_have_a_bound() -> None:
    one = uri(content_of())
    bounded = stage(replace(SETTINGS, max_audio_samples=RATE_HZ))
    (await bounded.prepare(clips(one, one), Client())).release()
    with pytest.raises(InvalidRequest, match=r"audio_url\[\d\]: all clips .* exceed 16000 samples"):
        await bounded.prepare(clips(one, one, one), Client())


async def test_requests_share_the_room_for_samples_until_they_are_processed() -> None:
    one = clips(uri(content_of()))
    shared = stage(replace(SETTINGS, max_video_pixels=2 * RATE_HZ, place_timeout_s=0.05))
    first = await shared.prepare(one, Client())
    second = await shared.prepare(one, Client())
    with pytest.raises(RefusedByEngine, match=r"audio_url\[0\]: no room") as refused:
        await shared.prepare(one, Client())
    assert refused.value.status == 503
    first.release()
    second.release()
    (await shared.prepare(one, Client())).release()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no sound", "is not audio of a known format"),
        (content_of(4)[:-40_000], "damaged or cut off"),
        (content_of(0.05), "shorter than"),
    ],
)
async def test_the_faulty_one_of_several_is_named_and_holds_no_room(
    content: bytes, said: str
) -> None:
    loader = MediaLoader(SETTINGS)
    with pytest.raises(InvalidRequest, match=rf"audio_url\[1\]: .*{said}"):
        await RawMedia(loader, MediaSupport()).prepare(
            clips(uri(content_of()), uri(content)), Client()
        )
    assert loader.decoded_room.free == SETTINGS.max_video_pixels


def test_what_sglang_cannot_decode_is_named() -> None:
    fault = ValueError("An exception occurred while loading AUDIO data at index 1: no")
    assert str(explain(fault)) == "audio_url[1]: cannot be decoded as audio"


def manager(**tokens: Any) -> Any:
    return SimpleNamespace(mm_processor=SimpleNamespace(mm_tokens=SimpleNamespace(**tokens)))


def test_a_model_without_a_token_for_sound_refuses_it() -> None:
    refusals = compat_multimodal.media_refusals(manager(image_token="<image>"))
    assert refusals["audio_url"] == "this model takes no audio input"
    assert "image_url" not in refusals


def test_a_model_that_listens_takes_sound_and_refuses_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listens = manager(audio_token_id=9)
    assert sorted(compat_multimodal.media_refusals(listens)) == ["image_url", "video_url"]
    monkeypatch.setattr(audio, "LIBRARY", "no_such_library")
    assert "decoding audio needs" in compat_multimodal.media_refusals(listens)["audio_url"]
