"""Requests with clips of sound, for `test_audio`."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import soundfile

from tests.e2e.multimodal_deployment import QUESTION, A, image

RATE_HZ = 16_000


def clip(
    seed: int, seconds: float = 1.5, form: str = "WAV", channels: int = 1, rate_hz: int = RATE_HZ
) -> bytes:
    """A few tones that swell and fade: no two are alike."""
    random = np.random.default_rng(seed)
    moments_s = np.arange(int(seconds * rate_hz))[:, None, None] / rate_hz
    tones_hz, beats_hz = (
        random.uniform(100, 4000, (channels, 5)),
        random.uniform(1, 8, (channels, 5)),
    )
    waves = np.sin(2 * np.pi * tones_hz * moments_s) * np.sin(2 * np.pi * beats_hz * moments_s)
    target = io.BytesIO()
    soundfile.write(target, 0.15 * waves.sum(axis=2), rate_hz, format=form)
    return target.getvalue()


def sound(content: bytes) -> dict[str, Any]:
    url = "data:audio/wav;base64," + base64.b64encode(content).decode()
    return {"type": "audio_url", "audio_url": {"url": url}}


def not_numbers() -> bytes:
    samples = np.zeros(RATE_HZ, np.float32)
    samples[5] = np.nan
    target = io.BytesIO()
    soundfile.write(target, samples, RATE_HZ, format="WAV", subtype="FLOAT")
    return target.getvalue()


S, T = clip(1), clip(2)
SOUND_CASES: dict[str, list[dict[str, Any]]] = {
    "text": [QUESTION],
    "sound": [sound(S), QUESTION],
    "other sound": [QUESTION, sound(T)],
    "two": [sound(S), QUESTION, sound(T)],
    "swapped": [sound(T), QUESTION, sound(S)],
    "compressed": [sound(clip(3, form="OGG")), QUESTION],
    "stereo": [sound(clip(4, form="FLAC", channels=2, rate_hz=44_100)), QUESTION],
    "shortest": [sound(clip(5, 0.1)), QUESTION],
    "longer than the model listens": [sound(clip(6, 31, rate_hz=8_000)), QUESTION],
}
FAULTY_SOUND: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no sound": ([sound(b"RIFF"), QUESTION], "audio_url[0]: is not audio of a known format"),
    "cut off": (
        [sound(S), sound(clip(1, 4, form="FLAC")[:-40_000])],
        "audio_url[1]: its content is damaged or cut off",
    ),
    "a click": ([sound(clip(1, 0.05))], "audio_url[0]: is shorter than 0.1 s"),
    "no numbers": ([sound(not_numbers())], "audio_url[0]: has samples that are no numbers"),
    "a film": ([sound(b"\0\0\0\x18ftypisom" + bytes(64))], "audio_url[0]: is not audio"),
    "a file": (
        [{"type": "audio_url", "audio_url": {"url": "file:///etc/passwd"}}],
        "audio_url[0]: is neither a data URI nor",
    ),
    "an image": ([image(A), QUESTION], "a part of type image_url: this model takes no image input"),
    "placeholder": ([sound(S), {"type": "text", "text": "<|AUDIO|>"}], "Found 2 <|AUDIO|>"),
}
