"""``python -m dynamo.sglang`` is this worker wherever the package is installed, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.environment import REPOSITORY
from tests.unit.packaging.conftest import Environment, make_environment

OVERLAY = "sglang_worker/overlay/dynamo/sglang/"
CHILDREN = """
import multiprocessing, sys

def where(queue):
    import dynamo.sglang
    queue.put(dynamo.sglang.__file__)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    child = context.Process(target=where, args=(queue,))
    child.start()
    print(queue.get(timeout=60))
    child.join()
"""


def test_upstream_owns_the_name_without_this_project(upstream_alone: Environment) -> None:
    assert OVERLAY not in upstream_alone.origin("dynamo.sglang")


@pytest.mark.parametrize("flags", [(), ("-I",), ("-P",), ("-s",)], ids=["plain", "-I", "-P", "-s"])
def test_the_module_and_its_main_are_ours(installed: Environment, flags: tuple[str, ...]) -> None:
    assert OVERLAY + "__init__.py" in installed.origin("dynamo.sglang", *flags)
    assert OVERLAY + "__main__.py" in installed.origin("dynamo.sglang.__main__", *flags)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_child_process_sees_the_same_module(
    installed: Environment, method: str, tmp_path: Path
) -> None:
    script = tmp_path / "parent.py"
    script.write_text(CHILDREN)
    assert OVERLAY in installed.run(str(script), method)


def test_modules_that_only_upstream_has_are_still_found(installed: Environment) -> None:
    for module in ("engine_generate", "backend_args", "request_handlers.handler_base"):
        origin = installed.origin(f"dynamo.sglang.{module}")
        assert origin.startswith(str(installed.site_packages / "dynamo" / "sglang"))


def test_upstream_modules_find_the_version_they_import(installed: Environment) -> None:
    assert installed.run("-c", "from dynamo.sglang import __version__; print(__version__)")


def test_pythonpath_wins_over_this_project(installed: Environment) -> None:
    origin = installed.origin("dynamo.sglang", PYTHONPATH=str(installed.site_packages))
    assert OVERLAY not in origin


def test_other_parts_of_dynamo_are_untouched(installed: Environment) -> None:
    for module in ("dynamo.frontend", "dynamo.runtime", "dynamo.llm"):
        assert installed.origin(module).startswith(str(installed.site_packages))


def test_the_module_and_the_console_script_run_the_operators_client(
    installed: Environment,
) -> None:
    assert "drain" in installed.run("-m", "dynamo.sglang", "ctl", "--help")
    script = installed.folder / "bin" / "sglang-worker"
    assert "drain" in installed.run(str(script), "ctl", "--help")


def test_sglang_finds_the_platform_entry_point(installed: Environment) -> None:
    script = (
        "from importlib.metadata import entry_points\n"
        "print([e.value for e in entry_points(group='sglang.srt.platforms')])"
    )
    assert "sglang_worker.reference_platform.activation:activate" in installed.run("-c", script)


def test_uninstalling_gives_the_name_back_to_upstream(wheel: Path, tmp_path: Path) -> None:
    for what in ([str(wheel)], ["--editable", str(REPOSITORY)]):
        environment = make_environment(tmp_path / str(len(what)))
        before = sorted(entry.name for entry in environment.site_packages.iterdir())
        environment.pip("install", "--no-deps", "--no-index", "--no-build-isolation", *what)
        environment.pip("uninstall", "--yes", "dynamo-sglang-worker")
        assert OVERLAY not in environment.origin("dynamo.sglang")
        assert sorted(entry.name for entry in environment.site_packages.iterdir()) == before


def test_a_missing_checkout_gives_the_name_back_instead_of_failing(
    installed: Environment, tmp_path: Path
) -> None:
    line = (installed.site_packages / "sglang_worker_overlay.pth").read_text()
    environment = make_environment(tmp_path / "gone")
    moved = line.replace(str(REPOSITORY), str(tmp_path / "no-such-checkout"))
    (environment.site_packages / "sglang_worker_overlay.pth").write_text(moved)
    assert OVERLAY not in environment.origin("dynamo.sglang")
