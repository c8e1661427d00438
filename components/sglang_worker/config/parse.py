"""Command line and environment -> one frozen WorkerConfig: parse, resolve, validate, freeze.

Pure but for reading the files that flags name; nothing is written to the environment and no
model is opened. The worker's own and Dynamo's flags come first, because importing SGLang's
parser takes seconds and most mistakes need not wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sglang_worker.config import freeze, rules, sglang_flags
from sglang_worker.config.disagg_file import merge_files
from sglang_worker.config.dynamo_flags import read_dynamo
from sglang_worker.config.own_flags import build_parser, read_own
from sglang_worker.config.refused import check_refused, without_harmless
from sglang_worker.config.rules import Given
from sglang_worker.config.strict_parser import option_strings
from sglang_worker.config.worker_config import SystemSettings, WorkerConfig


def parse_worker_config(argv: Sequence[str], environ: Mapping[str, str]) -> WorkerConfig:
    """Raises ConfigError with one sentence for the first thing that is wrong."""
    early = parse_early(argv, environ)
    own, dynamo = early.own, early.dynamo
    parser = sglang_flags.build_parser()
    merged = merge_files(parser, dynamo.rest, own["disagg_config"], own["disagg_config_key"])
    known = (*option_strings(build_parser()), *dynamo.options)
    given = Given(own=own, dynamo=dynamo, sglang=sglang_flags.read_sglang(parser, merged, known))
    rules.check(rules.LATE, given)
    return freeze.freeze(given, environ)


def parse_system(argv: Sequence[str], environ: Mapping[str, str]) -> SystemSettings:
    """The listener's settings alone, before SGLang's parser is imported: its port is open, and its
    probes answer, for the seconds which that import takes."""
    given = parse_early(argv, environ)
    return freeze.system_settings(given, freeze.early_parts(given, environ))


def parse_early(argv: Sequence[str], environ: Mapping[str, str]) -> Given:
    """Everything that needs no SGLang; fast, and most mistakes end here."""
    check_refused(argv, environ)
    own = read_own(without_harmless(argv), environ)
    given = Given(own=own, dynamo=read_dynamo(own.rest, environ))
    freeze.early_parts(given, environ)
    rules.check(rules.EARLY, given)
    return given
