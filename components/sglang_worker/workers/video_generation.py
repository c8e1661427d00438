"""The worker that makes videos (``--video-generation-worker``)."""

from __future__ import annotations

import time
from functools import partial

from sglang_worker.requests.images_and_videos import MediaCall
from sglang_worker.requests.videos import map_video_request
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.diffusion_handler import Answer, MediaKind
from sglang_worker.workers.diffusion_service import build_media_service, media_limits
from sglang_worker.workers.generation_job import Finished
from sglang_worker.workers.service import WorkerService

PROBE = {
    "prompt": "health",
    "size": "256x256",
    "response_format": "b64_json",
    "nvext": {"fps": 8, "num_frames": 5, "num_inference_steps": 1, "seed": 0},
}


def build(context: WorkerContext) -> WorkerService:
    limits = media_limits(context.engine.facts)
    kind = MediaKind("videos", partial(map_video_request, limits=limits), video_answer)
    return build_media_service(context, kind, "Videos", PROBE)


def video_answer(
    call: MediaCall, finished: Finished, places: list[dict[str, str]], request_id: str
) -> Answer:
    """Dynamo's video response."""
    return {
        "id": f"video-{request_id}",
        "object": "video",
        "model": call.model,
        "status": "completed",
        "progress": 100,
        "created": int(time.time()),
        "data": [{"output_format": call.format, "fps": call.fps, **place} for place in places],
        "inference_time_s": round(finished.took_s, 3),
    }
