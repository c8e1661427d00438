"""Image and video workers behind the real frontend, on SGLang's real generator on the CPU.

Tiny pipelines with random weights, in the shapes of Z-Image and Wan. Both workers start side by
side and serve the whole module; the tests that end them come last.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.client import Reply
from tests.support.diffusion_models import write_models
from tests.support.process_table import descendants
from tests.support.stack import Frontend, Stack, Worker

pytestmark = pytest.mark.e2e

IMAGES, VIDEOS = "/v1/images/generations", "/v1/videos"
TINY: dict[str, Any] = {"model": "image", "prompt": "a cat", "size": "64x64"}
FAST = {"num_inference_steps": 2, "seed": 1}
# Longer than any test waits: tens of seconds on two cores.
ENDLESS: dict[str, Any] = {**TINY, "size": "768x768", "nvext": {"num_inference_steps": 255}}
CLIP: dict[str, Any] = {
    "model": "video",
    "prompt": "a cat",
    "size": "64x64",
    "nvext": {"num_inference_steps": 2, "num_frames": 5, "fps": 8, "seed": 1},
}


class Deployment(msgspec.Struct, frozen=True):
    frontend: Frontend
    image: Worker
    video: Worker
    media: Path

    def ask(self, path: str, body: dict[str, Any]) -> Reply:
        return self.frontend.client.request("POST", path, body)

    def images(self, **more: Any) -> list[bytes]:
        """The contents of a good answer."""
        reply = self.ask(IMAGES, {**TINY, "nvext": FAST, "response_format": "b64_json", **more})
        assert reply.status == 200, reply.text
        return [base64.b64decode(one["b64_json"]) for one in reply.json()["data"]]

    def leave(self, body: dict[str, Any]) -> http.client.HTTPConnection:
        """Send an image request without waiting for its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.frontend.http_port)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", IMAGES, json.dumps(body), headers)
        return connection


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("diffusion")
    models = write_models(folder)
    environ = {
        "DYN_MEDIA_OUTPUT_FS_URL": f"file://{folder}/media",
        "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.2",
    }
    with Stack() as stack:
        image, video = (
            stack.start_worker(
                *("--model-path", str(models[kind]), "--served-model-name", kind, flag),
                *("--endpoint", f"dynamo.{kind}.generate"),
                name=kind,
                environ=environ,
            )
            for kind, flag in (
                ("image", "--image-diffusion-worker"),
                ("video", "--video-generation-worker"),
            )
        )
        frontend = stack.start_frontend()
        for name, worker in (("image", image), ("video", video)):
            worker.wait_for(
                lambda one=worker: one.require_running() or ready(one),
                "ready",
                deadline_s=300.0,
                ignore=(OSError,),
            )
            frontend.wait_for_model(name)
        yield Deployment(frontend, image, video, folder / "media")


def ready(worker: Worker) -> bool:
    return worker.system is not None and worker.system.get("/ready").status == 200


def opened(content: bytes) -> Any:
    from PIL import Image

    image = Image.open(io.BytesIO(content))
    image.load()
    return image


def test_an_image_is_stored_and_its_url_leads_to_it(deployment: Deployment) -> None:
    reply = deployment.ask(IMAGES, {**TINY, "nvext": FAST})
    assert reply.status == 200, reply.text
    body = reply.json()
    path = Path(body["data"][0]["url"].removeprefix("file://"))
    assert path.is_relative_to(deployment.media)
    image = opened(path.read_bytes())
    assert (image.format, image.size) == ("PNG", (64, 64))
    assert (body["size"], body["output_format"]) == ("64x64", "png")


def test_a_seed_repeats_its_images_and_several_differ(deployment: Deployment) -> None:
    first, second = deployment.images(n=2), deployment.images(n=2)
    assert len(set(first)) == 2
    assert first == second
    # The outputs of one request have consecutive seeds.
    assert deployment.images(nvext={**FAST, "seed": 2}) == first[1:]


@pytest.mark.parametrize(("format_", "name"), [("jpeg", "JPEG"), ("webp", "WEBP")])
def test_other_image_formats(deployment: Deployment, format_: str, name: str) -> None:
    (content,) = deployment.images(output_format=format_)
    assert opened(content).format == name


def test_a_video_has_the_frames_that_were_asked_for(deployment: Deployment) -> None:
    import imageio.v3

    reply = deployment.ask(VIDEOS, {**CLIP, "response_format": "b64_json"})
    assert reply.status == 200, reply.text
    body = reply.json()
    content = base64.b64decode(body["data"][0]["b64_json"])
    frames = imageio.v3.imread(io.BytesIO(content), extension=".mp4", plugin="FFMPEG")
    assert frames.shape == (5, 64, 64, 3)
    assert body["status"] == "completed" and body["data"][0]["fps"] == 8
    assert body["inference_time_s"] > 0


def test_a_video_is_stored_too(deployment: Deployment) -> None:
    reply = deployment.ask(VIDEOS, CLIP)
    assert reply.status == 200, reply.text
    assert Path(reply.json()["data"][0]["url"].removeprefix("file://")).stat().st_size > 0


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (IMAGES, {**TINY, "size": "65x64"}, "size: width must be a multiple of 16"),
        (IMAGES, {**TINY, "n": 11}, "n: must be at most 10"),
        (IMAGES, {**TINY, "steps": 3}, "steps: is not a field of this endpoint"),
        (IMAGES, {**TINY, "input_reference": "data:,"}, "input_reference: this model takes no"),
        (IMAGES, {**TINY, "nvext": {"seed": -1}}, "seed: must be at least 0"),
        (VIDEOS, {**CLIP, "seconds": 0}, "seconds: must be at least 1"),
        (VIDEOS, {**CLIP, "nvext": {"fps": 0}}, "fps: must be at least 1"),
    ],
)
def test_a_faulty_request_gets_a_400_that_names_the_field(
    deployment: Deployment, path: str, body: dict[str, Any], said: str
) -> None:
    reply = deployment.ask(path, body)
    assert reply.status == 400
    assert said in reply.json()["message"]


def test_health_passes_and_lifecycle_routes_are_absent(deployment: Deployment) -> None:
    for worker in (deployment.image, deployment.video):
        assert worker.system is not None
        assert worker.system.get("/health").status == 200
        assert worker.system.get("/engine/status").status == 404
        assert worker.system.request("POST", "/engine/drain").status == 404


def test_progress_is_logged_and_a_client_that_leaves_frees_the_generator(
    deployment: Deployment,
) -> None:
    connection = deployment.leave(ENDLESS)
    deployment.image.wait_log(r"generation-\d+: step \d+ of 255 after", deadline_s=60.0)
    connection.close()
    assert len(deployment.images()) == 1
    deployment.image.wait_log(r"cancelled after step \d+ of 255", deadline_s=10.0)


def test_a_running_video_is_finished_before_the_worker_stops(deployment: Deployment) -> None:
    replies: list[Reply] = []
    longer = {**CLIP, "nvext": {**CLIP["nvext"], "num_inference_steps": 60}}
    client = threading.Thread(target=lambda: replies.append(deployment.ask(VIDEOS, longer)))
    client.start()
    deployment.video.wait_log(r"generation-\d+: .*num_inference_steps 60", deadline_s=30.0)
    deployment.video.send(signal.SIGTERM)
    client.join(60.0)
    assert [reply.status for reply in replies] == [200], [reply.text for reply in replies]
    assert deployment.video.wait_exit(60.0) == 0
    deployment.video.check_nothing_left()


def test_a_dead_generator_fails_its_request_as_migratable_and_ends_the_worker(
    deployment: Deployment,
) -> None:
    replies: list[Reply] = []
    client = threading.Thread(target=lambda: replies.append(deployment.ask(IMAGES, ENDLESS)))
    seen = deployment.image.log().count("num_inference_steps 255")
    client.start()
    deployment.image.wait_for(
        lambda: deployment.image.log().count("num_inference_steps 255") > seen,
        "the generation runs",
        deadline_s=30.0,
    )
    os.kill(generator_pid(deployment.image), signal.SIGKILL)
    client.join(60.0)
    # Nobody else serves the model, so the frontend has nowhere to go on.
    assert [reply.status for reply in replies] == [503], [reply.text for reply in replies]
    assert deployment.image.wait_exit(60.0) == 71
    deployment.image.check_nothing_left()


def generator_pid(worker: Worker) -> int:
    """Of the worker's children, the one that runs the model."""
    commands = {one.pid: one.command for one in descendants(worker.pid)}
    # SGLang gives the process a title on GPUs alone.
    marks = ("sgl_diffusion::scheduler", "spawn_main")
    named = [pid for pid, command in commands.items() if any(mark in command for mark in marks)]
    assert len(named) == 1, commands
    return named[0]
