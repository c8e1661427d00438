"""The Dockerfiles: linted, and what the manifests count on is in them. No builder runs here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.k8s.manifests import DEPLOY
from tests.support.environment import REPOSITORY

FILES = ("Dockerfile", "Dockerfile.cpu")
HADOLINT = Path(sys.executable).parent / "hadolint"


def instructions(name: str) -> list[tuple[str, str]]:
    """(instruction, arguments), comments gone and continued lines joined."""
    lines = [
        line
        for line in (DEPLOY / name).read_text().splitlines()
        if not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = (line.split(None, 1) for line in joined.splitlines() if line.strip())
    return [(word.upper(), rest) for word, rest in found]


def environment(name: str) -> dict[str, str]:
    pairs = " ".join(rest for word, rest in instructions(name) if word == "ENV").split()
    return dict(pair.split("=", 1) for pair in pairs)


@pytest.mark.parametrize("name", FILES)
def test_the_linter_finds_nothing(name: str) -> None:
    done = subprocess.run(
        [str(HADOLINT), str(DEPLOY / name)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", FILES)
def test_the_image_ends_as_the_user_of_the_manifests(name: str) -> None:
    assert [rest for word, rest in instructions(name) if word == "USER"][-1] == "1000:1000"


@pytest.mark.parametrize("name", FILES)
def test_everything_that_is_written_at_run_time_goes_to_the_cache_volume(name: str) -> None:
    paths = {k: v for k, v in environment(name).items() if v.startswith("/")}
    assert {"HOME", "HF_HOME", "XDG_CACHE_HOME", "SGLANG_CACHE_DIR"} <= set(paths)
    assert all(path == "/cache" or path.startswith("/cache/") for path in paths.values())


def test_the_gpu_image_never_falls_back_to_the_cpu_and_adds_only_the_wheel() -> None:
    assert environment("Dockerfile")["DYN_SGL_REFERENCE_PLATFORM"] == "off"
    last_stage = [word for word, _ in instructions("Dockerfile")]
    last_stage = last_stage[len(last_stage) - last_stage[::-1].index("FROM") :]
    assert "COPY" not in last_stage
    (run,) = [rest for word, rest in instructions("Dockerfile") if word == "RUN"][-1:]
    assert "--no-deps" in run and "--no-index" in run


def test_the_cpu_image_installs_the_lock_and_makes_the_checkpoint_that_the_demo_serves() -> None:
    runs = " ".join(rest for word, rest in instructions("Dockerfile.cpu") if word == "RUN")
    assert "--no-deps -r requirements/cpu.lock" in runs
    assert "sglang_worker.demo.checkpoints /opt/demo gdn" in runs
    demo = yaml.safe_load((DEPLOY / "overlays/cpu-demo/worker.yaml").read_text())
    main = demo["spec"]["template"]["spec"]["containers"][0]
    assert "/opt/demo/gdn" in main["args"]


@pytest.mark.parametrize("name", FILES)
def test_what_is_copied_exists_and_is_not_ignored(name: str) -> None:
    kept = {
        line[1:]
        for line in (DEPLOY / f"{name}.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    for word, rest in instructions(name):
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (REPOSITORY / source).exists()
                assert source in kept
