"""The page of ``GET /engine`` in a real browser, with what a person would see on it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import RunningWorker, wait_until

Start = Callable[..., RunningWorker]
BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here; `apt-get install chromium` brings it"
)
HTML = {"Accept": "text/html,application/xhtml+xml"}


def browse(url: str, profile: Path, *arguments: str) -> str:
    assert BROWSER is not None
    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={profile}",
        "--virtual-time-budget=4000",
        *arguments,
        url,
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "HOME": str(profile)},
    )
    try:
        return process.communicate(timeout=60)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def visible(document: str) -> str:
    without_code = re.sub(r"<(script|style)>.*?</\1>", "", document, flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", without_code).split())


def test_a_browser_gets_the_page_and_a_program_gets_json(worker: RunningWorker) -> None:
    page = worker.get("/engine", headers=HTML)
    assert page.headers["Content-Type"].startswith("text/html")
    assert page.headers["Vary"] == "Accept"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert worker.get("/engine").json["state"] == "serving"
    assert worker.get("/engine", headers={"Accept": "application/json"}).json["routes"]


def test_the_page_needs_nothing_from_outside(worker: RunningWorker) -> None:
    text = worker.get("/engine", headers=HTML).body.decode()
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!data:)", text)
    assert "http://" not in text and "https://" not in text


@needs_browser
def test_the_page_shows_state_runners_and_routes(worker: RunningWorker, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{worker.port}/engine"
    seen = visible(browse(url, tmp_path, "--dump-dom"))
    assert "serving" in seen
    assert "worker 7" in seen
    assert "demo/qwen3-next-tiny" in seen
    assert "differs: unsupported on device" in seen
    assert "/engine/unpickle" in seen and "token, unpickles" in seen


@needs_browser
def test_the_page_says_what_a_drain_waits_for_and_when_the_state_is_old(
    start_worker: Start, tmp_path: Path
) -> None:
    worker = start_worker()
    draining = {"state": "draining", "reason": "sglang_inflight", "details": {"in_flight": 3}}
    assert worker.post("/engine/publish", draining).status == 200
    url = f"http://127.0.0.1:{worker.port}/engine"
    seen = visible(browse(url, tmp_path, "--dump-dom"))
    assert "draining" in seen and "SGLang still tracks requests" in seen and "in flight 3" in seen
    os.kill(worker.process.pid, signal.SIGSTOP)
    wait_until(lambda: worker.get("/engine").json["stale"])
    assert "What is shown is old" in visible(browse(url, tmp_path, "--dump-dom"))


@needs_browser
@pytest.mark.parametrize(("name", "size"), [("phone", "390,844"), ("desktop", "1280,900")])
def test_the_page_fits_its_screen(
    worker: RunningWorker, tmp_path: Path, name: str, size: str
) -> None:
    picture = tmp_path / f"{name}.png"
    url = f"http://127.0.0.1:{worker.port}/engine"
    browse(url, tmp_path, f"--window-size={size}", f"--screenshot={picture}", "--hide-scrollbars")
    assert picture.stat().st_size > 10_000
    if folder := os.environ.get("SGLANG_WORKER_TEST_SCREENSHOTS"):
        shutil.copy(picture, folder)
