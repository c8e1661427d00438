"""Clips of sound: what a file claims to be, and its samples in the one form that SGLang gets.

SGLang decodes whole files with whatever library it finds, some of which believe no header, and its
resampler needs a table as large as two unrelated rates are. So rates are checked, and files are
decoded here, block by block, no further than their header said when it was checked.
"""

from __future__ import annotations

import importlib
import io
import math
import struct
from importlib.util import find_spec
from typing import Any

import msgspec

from sglang_worker.media.errors import MediaError

LIBRARY = "soundfile"
# Names of libsndfile; each says itself how it is to be read.
FORMATS = ("WAV", "WAVEX", "RF64", "W64", "FLAC", "OGG", "MP3", "AIFF", "CAF", "AU")
NAMED = "WAV, FLAC, OGG, MP3, AIFF"
SHORTEST_S = 0.1
MOST_CHANNELS = 8
LOWEST_RATE_HZ, HIGHEST_RATE_HZ = 4_000, 384_000
# What most models listen at.
MODEL_RATE_HZ = 16_000
# Of torchaudio's resampler, which weighs every pair of sampling moments: 128 MiB.
MOST_WEIGHTS = 1 << 24
# Full scale is 1. Spectra of anything finite and far beyond it overflow to no number at all, which
# would reach the scheduler as a probability.
LOUDEST = 1 << 16
BLOCK_SAMPLES = 1 << 18
# In the first frame of an MP3 file that says how long it is. Of any other its length is estimated,
# from the size of the file and of its first frame.
_LENGTH_MARKS = (b"Xing", b"Info", b"VBRI")
_ESTIMATED = "MP3"
# Of such a file this much and a 50th may stand behind the estimate: tags, and a frame or two.
_SPARE_BYTES = 4096
# libsndfile's number of frames where a header leaves it open.
_UNKNOWN_FRAMES = (1 << 63) - 1
_WAV_FLOAT = 3
_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
_SAMPLE_BYTES = 4


class ClipFacts(msgspec.Struct, frozen=True):
    """``frames``: samples of one channel, no more than these will be read."""

    frames: int
    rate_hz: int

    @property
    def samples(self) -> int:
        """Of one channel, at the file's rate or at the models', whichever are more."""
        return max(self.frames, math.ceil(self.frames * MODEL_RATE_HZ / self.rate_hz))


def has_decoder() -> bool:
    return find_spec(LIBRARY) is not None


def clip_facts(content: bytes) -> ClipFacts:
    """From the header; of an MP3 file without one an estimate. Raises MediaError."""
    with _opened(io.BytesIO(content)) as clip:
        frames, rate_hz, channels = int(clip.frames), int(clip.samplerate), int(clip.channels)
    if channels > MOST_CHANNELS:
        raise MediaError(f"has {channels} channels, at most {MOST_CHANNELS} are accepted")
    _check_rate(rate_hz)
    if frames >= _UNKNOWN_FRAMES:
        raise MediaError("does not say how long it is")
    if frames < SHORTEST_S * rate_hz:
        raise MediaError(f"is shorter than {SHORTEST_S:g} s")
    return ClipFacts(frames, rate_hz)


def as_wav(content: bytes, facts: ClipFacts) -> bytes:
    """The clip as one channel of 32-bit floats at its own rate, the mean of its channels.

    Raises MediaError for what is damaged, or no sound.
    """
    import numpy as np

    wav = bytearray(_HEADER.size + facts.frames * _SAMPLE_BYTES)
    samples = np.frombuffer(wav, np.float32, offset=_HEADER.size)
    filled = _decode(content, samples)
    if filled < SHORTEST_S * facts.rate_hz:
        raise MediaError("its content is damaged or cut off")
    # No number is not below any bound either.
    if not float(np.abs(samples[:filled]).max()) <= LOUDEST:
        raise MediaError("has samples that are no numbers, or far beyond full scale")
    _HEADER.pack_into(wav, 0, *_header(filled, facts.rate_hz))
    return bytes(memoryview(wav)[: _HEADER.size + filled * _SAMPLE_BYTES])


def _decode(content: bytes, samples: Any) -> int:
    """How many of ``samples`` were filled: all, unless their number was an estimate."""
    source, filled, most = io.BytesIO(content), 0, len(samples)
    try:
        with _opened(source) as clip:
            estimated = clip.format == _ESTIMATED and not any(
                mark in content for mark in _LENGTH_MARKS
            )
            block_frames = BLOCK_SAMPLES // clip.channels
            while filled < most:
                block = clip.read(min(block_frames, most - filled), dtype="float64", always_2d=True)
                if not len(block):
                    break
                samples[filled : filled + len(block)] = block.mean(axis=1)
                filled += len(block)
            left_bytes = len(content) - source.tell()
    except Exception:
        # The library raises whatever its decoders stumbled over.
        raise MediaError("its content is damaged or cut off") from None
    if filled < most and not estimated:
        raise MediaError("its content is damaged or cut off")
    if estimated and left_bytes > _SPARE_BYTES + len(content) // 50:
        # The library reads no further, so the rest would be silently lost.
        raise MediaError(
            "has a changing bit rate and does not say how long it is; send WAV or FLAC"
        )
    return filled


def _opened(source: io.BytesIO) -> Any:
    library = importlib.import_module(LIBRARY)
    try:
        clip = library.SoundFile(source)
    except Exception:
        raise MediaError(f"is not audio of a known format ({NAMED})") from None
    if clip.format not in FORMATS:
        clip.close()
        raise MediaError(f"is not audio of a known format ({NAMED})")
    return clip


def _check_rate(rate_hz: int) -> None:
    if not LOWEST_RATE_HZ <= rate_hz <= HIGHEST_RATE_HZ:
        raise MediaError(
            f"has a sampling rate of {rate_hz} Hz; accepted: {LOWEST_RATE_HZ} to {HIGHEST_RATE_HZ}"
        )
    common = math.gcd(rate_hz, MODEL_RATE_HZ)
    if (rate_hz // common) * (MODEL_RATE_HZ // common) > MOST_WEIGHTS:
        raise MediaError(
            f"has a sampling rate of {rate_hz} Hz, which is too costly to turn into "
            f"{MODEL_RATE_HZ}; use a usual one, such as 16000, 44100 or 48000"
        )


def _header(frames: int, rate_hz: int) -> tuple[Any, ...]:
    """Fields of a RIFF file with a format chunk and the samples."""
    size_bytes = frames * _SAMPLE_BYTES
    return (
        *(b"RIFF", _HEADER.size - 8 + size_bytes, b"WAVE"),
        *(b"fmt ", 16, _WAV_FLOAT, 1, rate_hz, rate_hz * _SAMPLE_BYTES),
        *(_SAMPLE_BYTES, 8 * _SAMPLE_BYTES),
        *(b"data", size_bytes),
    )
