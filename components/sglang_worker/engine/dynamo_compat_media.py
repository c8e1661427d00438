"""Media that Dynamo's frontend decodes (``--frontend-decoding``): its options, and the pixels.

Read in ai-dynamo 1.6.1 ``dynamo/common/utils/media_nixl.py`` and ``media_decoder.py``. Transfer
needs NIXL; `config.libraries` refuses the flag at startup without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_worker.media.settings import read_settings

FETCH_TIMEOUT_MS = 30_000


class FrontendPixels:
    """Reads decoded images out of the frontend's memory. Used from one event loop."""

    def __init__(self) -> None:
        self._connector: Any = None

    async def load(self, kind: str, description: Mapping[str, Any]) -> Any:
        """A Pillow image; raises ValueError when the description or its pixels are unusable."""
        from dynamo.common.utils.media_nixl import read_decoded_media_via_nixl
        from PIL import Image

        if kind != "image_url":
            raise ValueError(f"only images are decoded by the frontend, got {kind}")
        pixels = await read_decoded_media_via_nixl(await self._connected(), dict(description))
        if pixels.ndim == 3 and pixels.shape[-1] == 1:
            pixels = pixels[..., 0]
        image = Image.fromarray(pixels)
        return image if image.mode == "RGB" else image.convert("RGB")

    async def _connected(self) -> Any:
        if self._connector is None:
            from dynamo.nixl_connect import Connector

            connector = Connector()
            await connector.initialize()
            self._connector = connector
        return self._connector


def frontend_decoding_options(environ: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of ``register_model`` that make the frontend fetch and decode images.

    Unless ``DYN_MM_ALLOW_INTERNAL`` is set it refuses URLs with address literals and explicit
    ports.
    """
    from dynamo.common.utils.media_decoder import build_frontend_image_decoder_options
    from dynamo.llm import MediaDecoder, MediaFetcher

    decoder = MediaDecoder()
    decoder.enable_image(build_frontend_image_decoder_options())
    allow_internal = read_settings(environ).allow_internal
    fetcher = MediaFetcher()
    fetcher.timeout_ms(FETCH_TIMEOUT_MS)
    fetcher.allow_direct_ip(allow_internal)
    fetcher.allow_direct_port(allow_internal)
    return {"media_decoder": decoder, "media_fetcher": fetcher}
