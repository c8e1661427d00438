"""Built distributions, and cheap virtual environments that look like a user's.

Such an environment holds a link to every installed package of the one that runs the tests, this
project left out: upstream's ``dynamo`` folder and ours meet in one site-packages, and nothing is
downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import msgspec
import pytest

from tests.support.environment import REPOSITORY, clean_environment

OURS = ("sglang_worker", "dynamo_sglang_worker", "_editable_impl_dynamo_sglang_worker")


class Environment(msgspec.Struct, frozen=True):
    """A virtual environment; commands run in a neutral folder without PYTHON* variables."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def run(self, *arguments: str, **environ: str) -> str:
        """Standard output of ``python <arguments>``; a failing command fails the test."""
        done = subprocess.run(
            [str(self.python), *arguments],
            cwd=self.folder,
            env=clean_environment({"PYTHONPATH": None, **environ}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "-qq", *arguments]
        subprocess.run(command, cwd=REPOSITORY, check=True, timeout=300)

    def origin(self, module: str, *flags: str, **environ: str) -> str:
        """Where ``import module`` finds its file."""
        script = f"import importlib.util as u; print(u.find_spec({module!r}).origin)"
        return self.run(*flags, "-c", script, **environ)


def make_environment(folder: Path) -> Environment:
    venv.create(folder, with_pip=False, symlinks=True)
    environment = Environment(folder)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(OURS):
            os.symlink(entry, environment.site_packages / entry.name)
    return environment


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution, built from the checkout as it is."""
    folder = tmp_path_factory.mktemp("dist")
    for target in ("wheel", "sdist"):
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
            cwd=REPOSITORY,
            check=True,
            capture_output=True,
            timeout=120,
        )
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="session")
def wheel(distributions: tuple[Path, Path]) -> Path:
    return distributions[0]


@pytest.fixture(scope="session")
def sdist(distributions: tuple[Path, Path]) -> Path:
    return distributions[1]


@pytest.fixture(scope="module")
def upstream_alone(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return make_environment(tmp_path_factory.mktemp("upstream"))


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """An environment with this project installed, once from the wheel and once editable."""
    environment = make_environment(tmp_path_factory.mktemp(request.param))
    what = [str(wheel)] if request.param == "wheel" else ["--editable", str(REPOSITORY)]
    environment.pip("install", "--no-deps", "--no-index", "--no-build-isolation", *what)
    return environment
