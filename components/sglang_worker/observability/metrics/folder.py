"""The folder through which SGLang's processes hand their metrics over (PROMETHEUS_MULTIPROC_DIR).

prometheus_client decides at its first import, in each process, whether it writes files there; so
the variable has to stand before anything imports it, and the engine's processes inherit it.

Without the operator's word the folder is a private one, mode 0700, gone with the worker. A worker
that is killed leaves it behind: it is held by a lock that ends with the worker and its forked
children, and the next worker removes the folders whose lock is free. A folder that the operator
names is used as it is and stays; only files of processes that no longer run are removed from it,
for prometheus_client would add their values to those of the living.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sglang_worker.errors import ConfigError

logger = logging.getLogger(__name__)

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
OLD_VARIABLE = "prometheus_multiproc_dir"
_PREFIX = "sglang-worker-metrics-"
_LOCK = "owner.lock"
# One that is being made has no lock yet.
_UNLOCKED_PATIENCE_S = 60.0
_VALUES = re.compile(r"(?:counter|gauge_[a-z]+|histogram|summary)_(?P<pid>\d+)\.db")


class Folder(msgspec.Struct, frozen=True):
    path: Path
    private: bool


def claim(environ: Mapping[str, str], parent: Path | None = None) -> Folder:
    """The folder to name in the environment. ``parent``: where private ones are made.

    Raises ConfigError when the operator's folder, or the temporary one, cannot be written to.
    """
    for variable in (VARIABLE, OLD_VARIABLE):
        if named := environ.get(variable):
            return Folder(_operators(variable, Path(named)), private=False)
    try:
        path = _private(parent or Path(tempfile.gettempdir()))
    except OSError as error:
        raise ConfigError(
            f"--enable-metrics needs a folder for SGLang's files, and none can be made in the "
            f"temporary directory ({error.strerror or error}); name one in {VARIABLE}"
        ) from None
    # Forked children inherit the registration; only the process that made the folder owns it.
    atexit.register(_remove_in, os.getpid(), path)
    return Folder(path, private=True)


def _private(parent: Path) -> Path:
    for left in parent.glob(f"{_PREFIX}*"):
        _remove_if_left(left)
    path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    _hold(path)
    return path


def _hold(path: Path) -> None:
    """Lock the folder for as long as this process or a forked child of it lives."""
    lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _HELD.append(lock)


_HELD: list[int] = []


def _remove_in(pid: int, path: Path) -> None:
    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)


def _remove_if_left(path: Path) -> None:
    """Remove a private folder of this user whose worker is gone."""
    try:
        facts = path.lstat()
        if facts.st_uid != os.getuid() or path.is_symlink():
            return
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        if time.time() - facts.st_mtime > _UNLOCKED_PATIENCE_S:
            shutil.rmtree(path, ignore_errors=True)
        return
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        pass  # held: its worker lives
    finally:
        os.close(lock)


def _operators(variable: str, path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{variable}={path}: cannot be used as a folder: {error.strerror}"
        ) from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{variable}={path}: the folder must be readable and writable")
    removed = [file.name for file in path.iterdir() if _is_stale(file)]
    for name in removed:
        try:
            (path / name).unlink(missing_ok=True)
        except OSError as error:
            # Its values would be added to those of the living.
            raise ConfigError(
                f"{variable}={path}: {name}, of a process that has ended, cannot be removed: "
                f"{error.strerror}"
            ) from None
    if removed:
        logger.info("removed %d metric files of ended processes from %s", len(removed), path)
    return path


def _is_stale(file: Path) -> bool:
    """Whether the process that wrote this file is gone, its number reused or not."""
    match = _VALUES.fullmatch(file.name)
    if match is None:
        return False
    import psutil

    try:
        began_s = psutil.Process(int(match["pid"])).create_time()
        return int(match["pid"]) == os.getpid() or file.stat().st_mtime < began_s
    except (psutil.NoSuchProcess, OverflowError):  # no process has so large a number
        return True
    except (psutil.Error, FileNotFoundError):  # another worker was quicker
        return False
