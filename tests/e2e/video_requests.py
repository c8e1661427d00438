"""Requests with videos, for `test_multimodal`."""

from __future__ import annotations

import base64
from typing import Any

import imageio.v3
import numpy as np

from tests.e2e.multimodal_deployment import QUESTION, A, image


def clip(seed: int, frames: int = 8) -> bytes:
    """Noise at 4 frames a second."""
    pixels = np.random.default_rng(seed).integers(0, 255, (frames, 48, 64, 3), dtype=np.uint8)
    content: bytes = imageio.v3.imwrite("<bytes>", pixels, extension=".mp4", plugin="FFMPEG", fps=4)
    return content


def video(content: bytes) -> dict[str, Any]:
    url = "data:video/mp4;base64," + base64.b64encode(content).decode()
    return {"type": "video_url", "video_url": {"url": url}}


V, W = clip(1), clip(2)
VIDEO_CASES: dict[str, list[dict[str, Any]]] = {
    "video": [video(V), QUESTION],
    "other video": [video(W), QUESTION],
    "image and video": [image(A), video(V), QUESTION],
    "two videos": [video(V), QUESTION, video(W)],
}
CUT_OFF = [video(V), video(V[: len(V) // 3]), QUESTION]
