"""What image and video workers share: from the started generator to a worker that can serve."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sglang_worker.engine import dynamo_compat
from sglang_worker.engine.compat_diffusion import GeneratorFacts
from sglang_worker.engine.dynamo_compat import ServedEndpoint
from sglang_worker.media.load import MediaLoader
from sglang_worker.media.settings import read_settings
from sglang_worker.media_output.store import open_store
from sglang_worker.requests.images_and_videos import MediaLimits
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.diffusion_handler import DiffusionHandler, MediaKind
from sglang_worker.workers.generation_line import GenerationLine
from sglang_worker.workers.health import check_override
from sglang_worker.workers.media_card import MediaCard, MediaService, media_payload
from sglang_worker.workers.probes import probe_test

# 64 x 64 pixels, for models that turn an image into another or into a video.
GRAY_SQUARE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAAAAACPAi4CAAAAK0lEQVR42u3MMREAAAgEoNfkRjeEmwcB"
    "qMlNRyAQCAQCgUAgEAgEAsHzYAFAdAEArKmlZAAAAABJRU5ErkJggg=="
)
# Each may take minutes; `--max-queued-requests` changes it.
DEFAULT_WAITING = 16


def build_media_service(
    context: WorkerContext, kind: MediaKind, model_type: str, probe: Mapping[str, Any]
) -> MediaService:
    """``probe``: the least that exercises the whole pipeline. Raises ConfigError."""
    config, explicit = context.config, context.config.engine.explicit
    key = dynamo_compat.health_check_key()
    override = config.health_check_payload or dynamo_compat.health_payload_override()
    check_override(override, kind.map_request)
    handler = DiffusionHandler(
        kind,
        context.engine,
        GenerationLine(
            context.engine.facts.replicas,
            int(explicit.get("max_queued_requests") or DEFAULT_WAITING),
        ),
        open_store(
            config.dynamo["media_output_fs_url"], config.dynamo.get("media_output_http_url")
        ),
        MediaLoader(
            read_settings(
                os.environ,
                allowed_media_domains=explicit.get("allowed_media_domains") or (),
                media_url_max_file_size_mb=explicit.get("media_url_max_file_size_mb"),
            )
        ),
        context.admission,
        probe_test(key),
        traces=bool(explicit.get("enable_trace")),
    )
    name, *aliases = config.model.served_model_names
    payload = media_payload(key, {**fitting(probe, context.engine.facts), "model": name}, override)
    return MediaService(
        ServedEndpoint(context.runtime, config.endpoint),
        handler.generate,
        handler,
        card=MediaCard(str(explicit["model_path"]), name, tuple(aliases), model_type),
        health_payload=payload,
        first_requests=(payload,),
    )


def fitting(probe: Mapping[str, Any], facts: GeneratorFacts) -> dict[str, Any]:
    """The probe with what this model cannot do without."""
    nvext = {**probe["nvext"], "num_inference_steps": facts.min_steps}
    given = {**probe, "nvext": nvext}
    if facts.requires_image:
        given["input_reference"] = GRAY_SQUARE
    return given


def media_limits(facts: GeneratorFacts) -> MediaLimits:
    return MediaLimits(facts.accepts_image, facts.requires_image, facts.default_fps)
