"""An image is what decodes as one, whatever it is called."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from PIL import Image
from sglang_worker.media.errors import MediaError
from sglang_worker.media.images import check_header, check_pixels, check_sides

LIMIT_PIXELS = 1_000_000


def image(form: str, side_pixels: int = 32) -> bytes:
    target = io.BytesIO()
    Image.effect_noise((side_pixels, side_pixels), 90).convert("RGB").save(target, form)
    return target.getvalue()


def png_that_claims(width: int, height: int) -> bytes:
    """A header alone: what a decompression bomb looks like before it is opened."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    return b"\x89PNG\r\n\x1a\n" + chunk + b"\x00\x00\x00\x00IEND\xaeB`\x82"


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_usual_formats_pass(form: str) -> None:
    content = image(form)
    check_header(content, LIMIT_PIXELS)
    check_pixels(content)


@pytest.mark.parametrize(
    "content",
    [
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"GIF89a",
        b"\x00" * 64,
        b"x",
    ],
)
def test_what_is_no_image_or_runs_a_program_is_refused(content: bytes) -> None:
    with pytest.raises(MediaError, match="known format"):
        check_header(content, LIMIT_PIXELS)


@pytest.mark.parametrize("side_pixels", [1001, 30_000])
def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(side_pixels: int) -> None:
    with pytest.raises(MediaError, match="more than the 1000000 pixels"):
        check_header(png_that_claims(side_pixels, side_pixels), LIMIT_PIXELS)


def test_a_cut_off_image_passes_the_header_check_but_not_the_other() -> None:
    content = image("PNG", 64)[:-2000]
    check_header(content, LIMIT_PIXELS)
    with pytest.raises(MediaError, match="damaged or cut off"):
        check_pixels(content)


@pytest.mark.parametrize("size", [(32, 32), (512, 32), (32, 512)])
def test_images_that_can_be_brought_to_another_size_pass(size: tuple[int, int]) -> None:
    check_sides(png_that_claims(*size), 32, 16)


@pytest.mark.parametrize("size", [(1, 1), (31, 64), (513, 32), (32, 513)])
def test_specks_and_strips_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(MediaError, match="at least 32 pixels, and the longer one at most 16"):
        check_sides(png_that_claims(*size), 32, 16)
