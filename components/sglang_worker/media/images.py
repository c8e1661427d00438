"""What an image file claims to be, before anything decodes its pixels."""

from __future__ import annotations

import io

from sglang_worker.media.errors import MediaError

# Formats that are only pixels; some others of Pillow start programs or follow references.
FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "ICO", "AVIF")


def check_header(content: bytes, max_pixels: int) -> int:
    """How many pixels it decodes to. Raises MediaError for anything but an image of a known format
    and a bearable size."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=_installed()) as image:
            width, height = image.size
    except Image.DecompressionBombError:
        raise MediaError(f"has more than the {max_pixels} pixels that are accepted") from None
    except Exception:
        # Pillow's plugins raise whatever their parser stumbled over.
        raise MediaError(f"is not an image of a known format ({', '.join(FORMATS)})") from None
    if width * height > max_pixels:
        raise MediaError(f"has more than the {max_pixels} pixels that are accepted")
    return int(width * height)


def check_sides(content: bytes, least_pixels: int, most_ratio: int) -> None:
    """Raises MediaError for an image, whose header passed, that is too small or too long a strip to
    be brought to another size."""
    from PIL import Image

    with Image.open(io.BytesIO(content), formats=_installed()) as image:
        short, long = sorted(image.size)
    if short < least_pixels or long > most_ratio * short:
        raise MediaError(
            f"its sides must have at least {least_pixels} pixels, and the longer one at most "
            f"{most_ratio} times those of the other"
        )


def check_pixels(content: bytes) -> None:
    """Decode it all, as costly as the image is large; raises MediaError for damaged content."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=_installed()) as image:
            image.load()
    except Exception:
        raise MediaError("its content is damaged or cut off") from None


def _installed() -> list[str]:
    from PIL import Image

    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]
