"""The handler of image and video workers, with a generator that the test steers."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dynamo.llm.exceptions import EngineShutdown, HttpError, InvalidArgument, WorkerUnavailable
from sglang_worker.engine.compat_diffusion import GeneratorFacts, GeneratorFailed
from sglang_worker.engine.step_board import Progress
from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.media import data_uri as data_uri_module
from sglang_worker.media import images
from sglang_worker.media.load import MediaLoader
from sglang_worker.media.settings import MediaSettings
from sglang_worker.media_output.store import open_store
from sglang_worker.requests.images import map_image_request
from sglang_worker.requests.images_and_videos import MediaLimits
from sglang_worker.requests.videos import map_video_request
from sglang_worker.workers import generation_job
from sglang_worker.workers.diffusion_handler import DiffusionHandler, MediaKind
from sglang_worker.workers.diffusion_service import fitting, media_limits
from sglang_worker.workers.generation_line import GenerationLine
from sglang_worker.workers.image_diffusion import PROBE as IMAGE_PROBE
from sglang_worker.workers.image_diffusion import image_answer
from sglang_worker.workers.probes import probe_test
from sglang_worker.workers.video_generation import PROBE as VIDEO_PROBE

from tests.support.wait import wait_until_async
from tests.unit.workers.fake_generator import FakeContext, FakeGenerator, settle

KEY = "_probe"
REQUEST = {"prompt": "a cat", "model": "img", "response_format": "b64_json", "nvext": {"seed": 1}}
LIMITS = MediaLimits(accepts_image=True)


class Bench:
    """One handler with everything around it."""

    def __init__(self, folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        self.media = folder / "media"
        self.generator = FakeGenerator(work)
        self.gate = AdmissionGate()
        self.handler = DiffusionHandler(
            MediaKind("images", lambda r: map_image_request(r, LIMITS), image_answer),
            self.generator,
            GenerationLine(1, 1),
            open_store(f"file://{self.media}", None),
            MediaLoader(MediaSettings()),
            self.gate,
            probe_test(KEY),
        )

    def ask(self, request: Any, context: FakeContext | None = None) -> asyncio.Task[list[Any]]:
        async def collect() -> list[Any]:
            answers = self.handler.generate(request, context or FakeContext())
            return [answer async for answer in answers]

        return asyncio.ensure_future(collect())

    async def until(self, condition: Callable[[], bool]) -> None:
        await wait_until_async(condition, "the handler gets there", interval_s=0.001)

    async def running(self, count: int = 1) -> None:
        await self.until(lambda: len(self.generator.running) == count)

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.generator.folder.iterdir())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_request_becomes_a_generation_and_its_files_the_answer(bench: Bench) -> None:
    asked = bench.ask({**REQUEST, "n": 2, "size": "64x48"})
    await bench.running()
    assert bench.gate.in_flight == 1 and bench.handler.live_generations == 1
    bench.generator.finish(1, b"first", b"second")
    (answer,) = await asked
    assert [base64.b64decode(one["b64_json"]) for one in answer["data"]] == [b"first", b"second"]
    assert (answer["size"], answer["output_format"]) == ("64x48", "png")
    assert bench.generator.calls[0]["num_outputs_per_prompt"] == 2
    assert bench.files == []
    await bench.until(lambda: bench.gate.in_flight == 0)
    assert bench.handler.live_generations == 0


async def test_an_url_leads_to_the_stored_file(bench: Bench) -> None:
    asked = bench.ask({"prompt": "a cat"})
    await bench.running()
    bench.generator.finish(1, b"pixels")
    (answer,) = await asked
    path = Path(answer["data"][0]["url"].removeprefix("file://"))
    assert path.read_bytes() == b"pixels" and path.is_relative_to(bench.media)


async def test_a_faulty_request_is_a_400_and_reaches_nothing(bench: Bench) -> None:
    with pytest.raises(InvalidArgument, match="size: "):
        await bench.ask({"prompt": "a cat", "size": "1x1"})
    assert bench.generator.calls == [] and bench.gate.in_flight == 0


async def test_a_late_request_is_offered_to_another_worker_but_a_probe_passes(
    bench: Bench,
) -> None:
    bench.gate.close()
    with pytest.raises(WorkerUnavailable):
        await bench.ask(REQUEST)
    asked = bench.ask({**REQUEST, KEY: True})
    await bench.running()
    bench.generator.finish(1, b"pixels")
    assert len(await asked) == 1


async def test_one_generation_at_a_time_and_a_full_line_sends_clients_elsewhere(
    bench: Bench,
) -> None:
    first, second = bench.ask(REQUEST), bench.ask(REQUEST)
    await bench.running()
    await settle()
    assert len(bench.generator.running) == 1
    with pytest.raises(WorkerUnavailable, match="wait already"):
        await bench.ask(REQUEST)
    bench.generator.finish(1, b"one")
    await bench.running(2)
    bench.generator.finish(2, b"two")
    answers = [await first, await second]
    assert [len(one) for one in answers] == [1, 1]


async def test_a_client_that_leaves_cancels_and_the_ticket_waits_for_the_generator(
    bench: Bench,
) -> None:
    context = FakeContext()
    asked = bench.ask(REQUEST, context)
    await bench.running()
    context.leave()
    assert await asked == []
    assert bench.generator.cancelled == [1]
    assert bench.gate.in_flight == 1 and bench.handler.cancelled == 1
    bench.generator.break_(1, GeneratorFailed("GenerationCancelled: after step 3 of 9"))
    await bench.until(lambda: bench.gate.in_flight == 0)


async def test_what_a_cancelled_generation_wrote_is_removed(bench: Bench) -> None:
    context = FakeContext()
    asked = bench.ask(REQUEST, context)
    await bench.running()
    context.leave()
    await asked
    bench.generator.finish(1, b"too late")
    await bench.until(lambda: bench.gate.in_flight == 0)
    assert bench.files == [] and not list(bench.media.rglob("*.png"))


async def test_a_client_that_leaves_the_line_never_reaches_the_generator(bench: Bench) -> None:
    first, context = bench.ask(REQUEST), FakeContext()
    await bench.running()
    waiting = bench.ask(REQUEST, context)
    await settle()
    context.leave()
    assert await waiting == []
    await bench.until(lambda: bench.gate.in_flight == 1)
    bench.generator.finish(1, b"pixels")
    await first
    assert len(bench.generator.calls) == 1 and bench.generator.cancelled == []


async def test_a_generator_dropped_by_the_runtime_counts_as_left(bench: Bench) -> None:
    asked = bench.ask(REQUEST)
    await bench.running()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert bench.generator.cancelled == [1]
    bench.generator.finish(1, b"too late")
    await bench.until(lambda: bench.gate.in_flight == 0)


async def test_at_the_workers_end_requests_go_on_elsewhere(bench: Bench) -> None:
    running, waiting = bench.ask(REQUEST), bench.ask(REQUEST)
    await bench.running()
    await settle()
    bench.handler.fail_all()
    for asked in (running, waiting):
        with pytest.raises(EngineShutdown):
            await asked
    assert bench.generator.cancelled == [1]


async def test_after_the_generators_death_nothing_is_asked_of_it(bench: Bench) -> None:
    asked = bench.ask(REQUEST)
    await bench.running()
    bench.handler.fail_all_without_engine()
    with pytest.raises(EngineShutdown):
        await asked
    await bench.until(lambda: bench.gate.in_flight == 0)
    assert bench.generator.cancelled == []


async def test_a_cancelled_generation_on_a_stuck_generator_still_lets_the_worker_end(
    bench: Bench,
) -> None:
    context = FakeContext()
    asked = bench.ask(REQUEST, context)
    await bench.running()
    context.leave()
    await asked
    bench.handler.fail_all_without_engine()
    await bench.until(lambda: bench.gate.in_flight == 0)


async def test_the_generators_failure_is_a_500_and_the_next_request_is_served(
    bench: Bench,
) -> None:
    asked = bench.ask(REQUEST)
    await bench.running()
    bench.generator.break_(1, GeneratorFailed("CUDA out of memory"))
    with pytest.raises(HttpError) as failed:
        await asked
    assert failed.value.code == 500
    asked = bench.ask(REQUEST)
    await bench.running(2)
    bench.generator.finish(2, b"pixels")
    assert len(await asked) == 1


async def test_what_sglang_refuses_before_it_starts_is_a_400(bench: Bench) -> None:
    asked = bench.ask(REQUEST)
    await bench.running()
    bench.generator.break_(1, ValueError("fps must be a positive int"))
    with pytest.raises(InvalidArgument, match="fps must be"):
        await asked


async def test_a_failing_store_is_a_500_without_its_details(bench: Bench) -> None:
    asked = bench.ask({"prompt": "a cat"})
    await bench.running()
    bench.media.joinpath("images").write_text("in the way")
    bench.generator.finish(1, b"pixels")
    with pytest.raises(HttpError) as failed:
        await asked
    assert failed.value.code == 500 and str(bench.media) not in str(failed.value)


def data_uri(width: int = 32, height: int = 32) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


async def test_a_guiding_image_is_a_private_file_for_the_length_of_the_request(
    bench: Bench,
) -> None:
    asked = bench.ask({**REQUEST, "input_reference": data_uri()})
    await bench.running()
    path = Path(bench.generator.calls[0]["image_path"])
    assert path.parent == bench.generator.folder and path.stat().st_mode & 0o077 == 0
    bench.generator.finish(1, b"pixels")
    await asked
    await bench.until(lambda: not path.exists())


@pytest.mark.parametrize(
    "reference",
    [
        "data:image/png;base64,AAAA",
        data_uri(1, 1),
        data_uri(600, 32),
        "file:///etc/passwd",
        "/etc/passwd",
        "http://127.0.0.1/x.png",
        "ftp://host/x.png",
    ],
)
async def test_a_bad_guiding_image_is_a_400_that_names_the_field(
    bench: Bench, reference: str
) -> None:
    with pytest.raises(InvalidArgument, match="input_reference: "):
        await bench.ask({**REQUEST, "input_reference": reference})
    assert bench.generator.calls == [] and bench.files == []


async def test_progress_is_logged_now_and_then_and_never_the_prompt(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation_job, "LOOK_INTERVAL_S", 0.001)
    monkeypatch.setattr(generation_job, "LOG_INTERVAL_S", 0.0)
    caplog.set_level("INFO")
    asked = bench.ask({**REQUEST, "prompt": "a secret wish"})
    await bench.running()
    bench.generator.steps[1] = Progress(3, 9)
    await bench.until(lambda: "generation-1: step 3 of 9" in caplog.text)
    bench.generator.finish(1, b"pixels")
    await asked
    assert caplog.text.count("step 3 of 9") == 1
    assert "secret" not in caplog.text


async def test_progress_has_a_bound_on_its_rate(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation_job, "LOOK_INTERVAL_S", 0.001)
    caplog.set_level("INFO")
    asked = bench.ask(REQUEST)
    await bench.running()
    for step in range(20):
        bench.generator.steps[1] = Progress(step, 20)
        await asyncio.sleep(0.002)
    bench.generator.finish(1, b"pixels")
    await asked
    # Within the first `LOG_INTERVAL_S` seconds nothing is said at all.
    assert "step" not in caplog.text


async def test_probes_are_not_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    asked = bench.ask({**REQUEST, KEY: True})
    await bench.running()
    bench.generator.finish(1, b"pixels")
    await asked
    assert caplog.text == ""


async def test_the_clients_trace_reaches_the_generator_only_when_asked_for(bench: Bench) -> None:
    bench.handler._traces = True
    context = FakeContext()
    context.trace_headers = lambda: {"traceparent": "00-1"}  # type: ignore[attr-defined]
    asked = bench.ask(REQUEST, context)
    await bench.running()
    assert bench.generator.calls[0]["external_trace_header"] == {"traceparent": "00-1"}
    bench.generator.finish(1, b"pixels")
    await asked


@pytest.mark.parametrize("kind", ["image", "video"])
def test_the_health_payload_fits_every_model(kind: str) -> None:
    facts = GeneratorFacts(
        *("TI2I", kind == "image", kind == "video", True, True),
        default_fps=16,
        min_steps=4,
    )
    probe, mapping = {
        "image": (IMAGE_PROBE, map_image_request),
        "video": (VIDEO_PROBE, map_video_request),
    }[kind]
    call = mapping(fitting(probe, facts), media_limits(facts))
    assert call.fields["num_inference_steps"] == 4
    assert call.reference is not None
    images.check_pixels(data_uri_module.decode(call.reference, 1 << 20))


async def test_a_cancellation_is_no_error_in_the_log_but_a_failure_is(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    context = FakeContext()
    asked = bench.ask(REQUEST, context)
    await bench.running()
    context.leave()
    await asked
    bench.generator.break_(1, GeneratorFailed("cancelled after step 3 of 9"))
    await bench.until(lambda: bench.gate.in_flight == 0)
    assert [record.levelname for record in caplog.records if record.levelno > 20] == []
    asked = bench.ask(REQUEST)
    await bench.running(2)
    bench.generator.break_(2, GeneratorFailed("out of memory\nTraceback …"))
    with pytest.raises(HttpError):
        await asked
    assert "generation-2 failed: out of memory" in caplog.text
