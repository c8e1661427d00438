"""A clip is what decodes as one, and SGLang gets its samples in one form."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
import soundfile
from sglang_worker.media import audio
from sglang_worker.media.errors import MediaError

RATE_HZ = 16_000


def noise(seconds: float = 0.5, channels: int = 1, rate_hz: int = RATE_HZ) -> Any:
    shape = (int(seconds * rate_hz), channels)
    return np.random.default_rng(1).uniform(-0.5, 0.5, shape).astype(np.float32)


def encoded(samples: Any, form: str = "WAV", rate_hz: int = RATE_HZ, **more: Any) -> bytes:
    target = io.BytesIO()
    soundfile.write(target, samples, rate_hz, format=form, **more)
    return target.getvalue()


def decoded(content: bytes) -> tuple[Any, int]:
    samples, rate_hz = soundfile.read(io.BytesIO(audio.as_wav(content, audio.clip_facts(content))))
    return samples, int(rate_hz)


@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG", "MP3", "AIFF", "CAF", "AU", "W64", "RF64"])
def test_usual_formats_become_what_their_own_decoder_reads(form: str) -> None:
    content = encoded(noise(), form)
    samples, rate_hz = decoded(content)
    wanted, _ = soundfile.read(io.BytesIO(content))
    assert rate_hz == RATE_HZ
    # The MP3 decoder computes a last digit differently from buffer to buffer.
    assert np.allclose(samples, wanted, rtol=0, atol=1e-6)


def test_several_channels_become_their_mean_over_any_number_of_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audio, "BLOCK_SAMPLES", 300)
    content = encoded(noise(channels=2, rate_hz=44_100), rate_hz=44_100)
    samples, rate_hz = decoded(content)
    wanted, _ = soundfile.read(io.BytesIO(content))
    assert rate_hz == 44_100
    assert np.array_equal(samples, wanted.mean(axis=1).astype(np.float32))


def test_the_same_clip_is_always_the_same_bytes() -> None:
    content = encoded(noise(), "FLAC")
    facts = audio.clip_facts(content)
    assert audio.as_wav(content, facts) == audio.as_wav(content, facts)


@pytest.mark.parametrize(
    ("rate_hz", "samples"), [(48_000, 48_000), (16_000, 16_000), (8_000, 16_000)]
)
def test_a_clip_counts_for_what_it_becomes(rate_hz: int, samples: int) -> None:
    assert audio.ClipFacts(rate_hz, rate_hz).samples == samples


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        b"\x00" * 64,
        b"RIFF\x04\x00\x00\x00WAVE",
        b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom",
        b"\x1a\x45\xdf\xa3" + bytes(60),
        b"#!AMR\n" + bytes(60),
    ],
)
def test_what_is_no_audio_or_a_container_is_refused(content: bytes) -> None:
    with pytest.raises(MediaError, match="known format"):
        audio.clip_facts(content)


@pytest.mark.parametrize(
    ("samples", "rate_hz", "said"),
    [
        (noise(0.05), RATE_HZ, "shorter than 0.1 s"),
        (noise(channels=9), RATE_HZ, "9 channels"),
        (noise(rate_hz=2_000), 2_000, "sampling rate of 2000 Hz; accepted"),
        (noise(rate_hz=44_101), 44_101, "44101 Hz, which is too costly"),
    ],
)
def test_what_would_be_costly_or_nothing_is_refused(samples: Any, rate_hz: int, said: str) -> None:
    with pytest.raises(MediaError, match=said):
        audio.clip_facts(encoded(samples, rate_hz=rate_hz))


@pytest.mark.parametrize(
    "rate_hz", [8_000, 11_025, 22_050, 24_000, 44_100, 48_000, 96_000, 192_000]
)
def test_usual_rates_pass(rate_hz: int) -> None:
    audio.clip_facts(encoded(noise(0.2, rate_hz=rate_hz), rate_hz=rate_hz))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_samples_that_no_spectrum_can_hold_are_refused(value: float) -> None:
    samples = noise()
    samples[100] = value
    with pytest.raises(MediaError, match="no numbers"):
        decoded(encoded(samples, subtype="FLOAT"))


def test_a_flac_that_is_cut_off_is_refused() -> None:
    with pytest.raises(MediaError, match="damaged or cut off"):
        decoded(encoded(noise(2.0), "FLAC")[:-20_000])


def mp3_without_length(samples: Any, mode: str, rate_hz: int = 44_100) -> bytes:
    """As those that are sent while they are made: the first frame holds the length, drop it."""
    content = encoded(samples, "MP3", rate_hz, bitrate_mode=mode, compression_level=0.5)
    return content[content.index(content[:2], 4) :]


def test_an_mp3_without_its_length_is_read_as_far_as_it_goes() -> None:
    """The library estimates some frames too many."""
    content = mp3_without_length(noise(30.0, rate_hz=44_100), "CONSTANT")
    facts = audio.clip_facts(content)
    samples, _ = decoded(content)
    assert 29.9 * 44_100 < len(samples) < facts.frames
    tagged, _ = decoded(content + b"TAG" + bytes(125))
    assert len(tagged) == len(samples)


def test_an_mp3_whose_end_the_library_would_not_find_is_refused() -> None:
    samples = noise(30.0, rate_hz=44_100)
    samples[10 * 44_100 :] *= 0.001
    with pytest.raises(MediaError, match="changing bit rate"):
        decoded(mp3_without_length(samples, "VARIABLE"))


@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
def test_an_mp3_that_says_its_length_is_refused_when_it_is_cut_off(mode: str) -> None:
    content = encoded(noise(3.0), "MP3", bitrate_mode=mode, compression_level=0.5)
    with pytest.raises(MediaError, match="damaged or cut off"):
        decoded(content[:-1000])


def test_a_flac_that_leaves_its_length_open_is_refused_by_name() -> None:
    content = bytearray(encoded(noise(), "FLAC"))
    content[21] &= 0xF0
    content[22:26] = bytes(4)
    with pytest.raises(MediaError, match="does not say how long"):
        audio.clip_facts(bytes(content))


def test_no_more_is_read_than_the_header_said() -> None:
    """Whatever stands behind it: a header of 0.2 s in front of a second."""
    content = bytearray(encoded(noise(1.0)))
    place = content.index(b"data") + 4
    content[place : place + 4] = struct.pack("<I", 2 * RATE_HZ // 5)
    samples, _ = decoded(bytes(content))
    assert len(samples) == RATE_HZ // 5
