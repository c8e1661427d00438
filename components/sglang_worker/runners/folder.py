"""The private folder through which scheduler processes hand their reports to the worker.

One file per rank, written under a temporary name and renamed, so a reader never sees half a file.
The folder carries the strictness that the processes must follow. It is created 0700 and removed
when the worker exits.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import msgspec

from sglang_worker.runners import records

VARIABLE = "DYN_SGL_RUNNER_REPORT_DIR"
_SETTINGS = "settings.json"


class Settings(msgspec.Struct, frozen=True):
    strict: bool = True


class ReportFolder:
    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings

    @classmethod
    def create(cls, environ: MutableMapping[str, str], settings: Settings) -> ReportFolder:
        """A new empty folder, named in `environ` for the children, removed at exit."""
        path = Path(tempfile.mkdtemp(prefix="sglang-worker-runners-"))
        folder = cls(path, settings)
        (path / _SETTINGS).write_bytes(msgspec.json.encode(settings))
        environ[VARIABLE] = str(path)
        # Forked children inherit the registration; only the process that made the folder owns it.
        atexit.register(folder._remove_in, os.getpid())
        return folder

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> ReportFolder | None:
        """The folder that the parent named, or None when there is none (or no longer)."""
        name = environ.get(VARIABLE)
        if not name or not (Path(name) / _SETTINGS).is_file():
            return None
        data = (Path(name) / _SETTINGS).read_bytes()
        return cls(Path(name), msgspec.json.decode(data, type=Settings))

    def write(self, record: records.RankRecord) -> None:
        final = self.path / f"rank-{record.identity.rank}.json"
        temporary = final.with_suffix(f".{os.getpid()}.part")
        with open(temporary, "wb", opener=_private) as file:
            file.write(records.encode(record))
        temporary.replace(final)

    def read(self) -> dict[int, records.RankRecord]:
        """Every rank's record so far, by rank."""
        found = (records.decode(file.read_bytes()) for file in self.path.glob("rank-*.json"))
        return {record.identity.rank: record for record in found}

    def errors(self) -> list[str]:
        """Sentences that scheduler processes left, also those that died before reporting."""
        return [error for record in self.read().values() for error in record.errors]

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _remove_in(self, pid: int) -> None:
        if os.getpid() == pid:
            self.remove()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
