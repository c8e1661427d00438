"""The worker that makes images (``--image-diffusion-worker``)."""

from __future__ import annotations

import time
from functools import partial

from sglang_worker.requests.images import map_image_request
from sglang_worker.requests.images_and_videos import MediaCall
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.diffusion_handler import Answer, MediaKind
from sglang_worker.workers.diffusion_service import build_media_service, media_limits
from sglang_worker.workers.generation_job import Finished
from sglang_worker.workers.service import WorkerService

PROBE = {
    "prompt": "health",
    "n": 1,
    "size": "512x512",
    "response_format": "b64_json",
    "nvext": {"num_inference_steps": 1, "seed": 0},
}


def build(context: WorkerContext) -> WorkerService:
    limits = media_limits(context.engine.facts)
    kind = MediaKind("images", partial(map_image_request, limits=limits), image_answer)
    return build_media_service(context, kind, "Images", PROBE)


def image_answer(
    call: MediaCall, finished: Finished, places: list[dict[str, str]], request_id: str
) -> Answer:
    """OpenAI's images response; the frontend adds what is absent as null."""
    first = finished.outputs[0]
    return {
        "created": int(time.time()),
        "data": places,
        "output_format": call.format,
        "size": f"{first.width}x{first.height}",
    }
