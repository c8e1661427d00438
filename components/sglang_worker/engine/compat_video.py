"""What SGLang would decode of a video, told without decoding a frame (read in 0.5.23)."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

VIDEO_DECODERS = ("torchcodec", "decord")
# ``processors/qwen_vl.py``: it takes frames in pairs.
FRAMES_PER_S, LEAST_FRAMES, MOST_FRAMES = 2, 4, 768
FEWEST_FRAMES = 2
# The layout of FFmpeg's structures belongs to a major version of the library.
FORMAT_MAJOR = 62
_VIDEO = 0


class VideoFacts(msgspec.Struct, frozen=True):
    """``frames``: all, which the decoder walks through; ``taken``: those that SGLang keeps."""

    frames: int
    taken: int
    frame_pixels: int


class LargeFrame(ValueError):
    """A frame has more pixels than are accepted."""


def has_video_decoder() -> bool:
    """Whether SGLang can decode one. torchcodec alone proves nothing: without FFmpeg's libraries
    SGLang turns to decord, and finds out at the first video whether that is there."""
    preferred, fallback = VIDEO_DECODERS
    try:
        decoder = importlib.import_module("sglang.srt.utils.video_decoder")
    except ImportError:
        return any(importlib.util.find_spec(name) is not None for name in VIDEO_DECODERS)
    return str(decoder._BACKEND) == preferred or importlib.util.find_spec(fallback) is not None


def video_facts(content: bytes, max_frame_pixels: int) -> VideoFacts:
    """Whole frames are kept, about two a second (0.5.23 ``processors/qwen_vl.py``).

    Raises LargeFrame, before anything as large is allocated where the decoder's library allows
    (see `_stated_sizes`), and ValueError for what is no video.
    """
    try:
        stated = 0
        for stated in _stated_sizes(content):
            _check_frame(stated, max_frame_pixels)
        return _opened(content, stated, max_frame_pixels)
    except (ImportError, LargeFrame):
        raise
    except Exception as failure:
        # The decoders raise whatever their libraries stumbled over.
        raise ValueError(f"no video: {type(failure).__name__}") from None


def _opened(content: bytes, frame_pixels: int, max_frame_pixels: int) -> VideoFacts:
    from sglang.srt.utils.video_decoder import VideoDecoderWrapper

    with VideoDecoderWrapper(content) as video:
        frames, fps = len(video), float(video.avg_fps or 0.0)
        # With decord this decodes the first frame.
        frame_pixels = frame_pixels or math.prod(video.frame_shape)
    _check_frame(frame_pixels, max_frame_pixels)
    return VideoFacts(frames, _taken(frames, fps), frame_pixels)


def _taken(frames: int, fps: float) -> int:
    taken = min(frames, MOST_FRAMES)
    if fps > 0:
        taken = min(taken, max(LEAST_FRAMES, math.ceil(frames / fps * FRAMES_PER_S)))
    return taken


def _check_frame(pixels: int, max_frame_pixels: int) -> None:
    if pixels > max_frame_pixels:
        raise LargeFrame(f"frames of {pixels} pixels")


class _Format(ctypes.Structure):
    """The beginning of AVFormatContext."""

    _fields_ = (
        ("pointers", ctypes.c_void_p * 5),
        ("flags", ctypes.c_int),
        ("stream_count", ctypes.c_uint),
        ("streams", ctypes.POINTER(ctypes.c_void_p)),
    )


class _Stream(ctypes.Structure):
    """The beginning of AVStream."""

    _fields_ = (
        ("description", ctypes.c_void_p),
        ("index", ctypes.c_int),
        ("id", ctypes.c_int),
        ("parameters", ctypes.c_void_p),
    )


class _Parameters(ctypes.Structure):
    """The beginning of AVCodecParameters."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("codec", ctypes.c_int * 2),
        ("extra", ctypes.c_void_p),
        ("extra_bytes", ctypes.c_int),
        ("side_data", ctypes.c_void_p),
        ("side_data_count", ctypes.c_int),
        ("format", ctypes.c_int),
        ("bit_rate", ctypes.c_int64),
        ("bits", ctypes.c_int * 2),
        ("profile", ctypes.c_int * 2),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
    )


def _stated_sizes(content: bytes) -> Iterator[int]:
    """Pixels of the largest frame: as the container says, then as the codec's header says.

    decord tells a size only of a decoded frame, so its own FFmpeg is asked; nothing with another
    decoder, which tells it itself, or another version of that library.
    """
    library = _decords_library()
    if library is None:
        return
    with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
        file.write(content)
        file.flush()
        with _opened_format(library, file.name) as context:
            yield _largest(context)
            if library.avformat_find_stream_info(context, None) >= 0:
                yield _largest(context)


def _decords_library() -> Any:
    decoder = importlib.import_module("sglang.srt.utils.video_decoder")
    _, fallback = VIDEO_DECODERS
    if str(decoder._BACKEND) != fallback:
        return None
    # Loads the libraries that this one needs.
    package = importlib.import_module(fallback)
    folder = Path(str(package.__file__)).parent.parent / "decord2.libs"
    for path in folder.glob(f"libavformat-*.so.{FORMAT_MAJOR}*"):
        library = ctypes.CDLL(str(path))
        if library.avformat_version() >> 16 == FORMAT_MAJOR:
            return library
    return None


@contextmanager
def _opened_format(library: Any, path: str) -> Iterator[Any]:
    context = ctypes.POINTER(_Format)()
    if library.avformat_open_input(ctypes.byref(context), path.encode(), None, None) < 0:
        raise ValueError("no container of a known format")
    try:
        yield context
    finally:
        library.avformat_close_input(ctypes.byref(context))


def _largest(context: Any) -> int:
    found = context.contents
    sizes = [0]
    for number in range(found.stream_count):
        stream = ctypes.cast(found.streams[number], ctypes.POINTER(_Stream)).contents
        codec = ctypes.cast(stream.parameters, ctypes.POINTER(_Parameters)).contents
        if codec.kind == _VIDEO:
            sizes.append(codec.width * codec.height)
    return max(sizes)
