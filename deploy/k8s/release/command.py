"""The program: flags, the connection to the cluster, the dry run, and the exit code."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from kubernetes import client, config
from kubernetes.config import ConfigException

from .cluster import Cluster, Target
from .codes import Code, ReleaseError
from .display import Table
from .forward import Connect, by_address, by_port_forward
from .model import Kind, Limits, Pod
from .planner import Options, outdated
from .runner import Runner

STATEFULSET_LABEL = "controller-revision-hash"
EPILOG = """\
exit codes: 0 done, 1 a Pod could not be drained and serves again, 2 usage, 3 a replacement does
not serve, 4 Kubernetes does not answer, 5 a drained Pod could not be resumed, 130 interrupted.
Run the same command again after an interruption: it goes on where it was."""


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        prog="release.py",
        description="Replace the Pods of a worker set one after the other, each drained first.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = flags.add_mutually_exclusive_group(required=True)
    what.add_argument("--statefulset", metavar="NAME", help="with updateStrategy OnDelete")
    what.add_argument("--selector", metavar="LABELS", help="Pods by label (Grove)")
    flags.add_argument("-n", "--namespace", default="default")
    flags.add_argument("--kubeconfig", metavar="F")
    flags.add_argument("--context", metavar="NAME")
    flags.add_argument(
        "--revision-label", default=STATEFULSET_LABEL, help="label with a Pod's template hash"
    )
    flags.add_argument("--revision", help="the hash that is wanted, where no StatefulSet tells it")
    flags.add_argument("--all", action="store_true", help="also Pods of the wanted revision")
    flags.add_argument(
        "--created-before",
        type=_moment,
        metavar="TIME",
        help="with --all or --selector: only Pods older than this (ISO 8601), default now",
    )
    flags.add_argument("--concurrency", type=_count, default=1, metavar="N")
    flags.add_argument(
        "--min-serving", type=_natural, default=1, metavar="N", help="other Pods that stay ready"
    )
    flags.add_argument(
        "--connect", choices=("port-forward", "pod-ip"), default="port-forward", help="to a worker"
    )
    flags.add_argument("--port", type=_count, default=8081, help="where a Pod names none")
    flags.add_argument("--token-file", type=Path, metavar="F", help="of the system listener")
    flags.add_argument("--drain-timeout", type=_seconds, default=300.0, metavar="S")
    flags.add_argument("--replace-timeout", type=_seconds, default=1800.0, metavar="S")
    flags.add_argument("--unreachable-timeout", type=_seconds, default=30.0, metavar="S")
    flags.add_argument("--resume-timeout", type=_seconds, default=60.0, metavar="S")
    flags.add_argument(
        "--force",
        action="store_true",
        help="delete a Pod that cannot be drained; it loses requests",
    )
    flags.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")
    return flags


def main(argv: Sequence[str]) -> int:
    try:
        flags = parser().parse_args(argv)
    except SystemExit as leaving:
        return int(leaving.code or 0)
    # A container that runs this is stopped by SIGTERM: the same way back as Ctrl-C.
    # Its retry warnings would tear the table; what fails in the end is said by us.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _release(flags)
    except ReleaseError as error:
        say(f"release: {error}")
        return error.code
    except KeyboardInterrupt:
        return Code.INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _release(flags: argparse.Namespace) -> int:
    api = _connect_api(flags)
    core = client.CoreV1Api(api)
    target = Target(
        client.AppsV1Api(api),
        flags.namespace,
        flags.statefulset,
        flags.selector,
        flags.revision_label,
        flags.revision,
    )
    before_s = flags.created_before or time.time()
    options = _options(flags, before_s)
    connect = _connector(flags)
    cluster = Cluster(core, flags.namespace, target, flags.port)
    cluster.start()
    try:
        revision = target.revision()
        if flags.dry_run:
            return _dry_run(cluster, revision, options, connect)
        if flags.created_before is None and (revision is None or flags.all):
            say(f"to go on after an interruption add --created-before {_text(before_s)}")
        return Runner(cluster, connect, options, Table(sys.stderr)).run(revision, say)
    finally:
        cluster.close()


def _dry_run(cluster: Cluster, revision: str | None, options: Options, connect: Connect) -> int:
    pods = cluster.snapshot(revision)
    going = outdated(pods, options)
    for number, pod in enumerate(going, 1):
        print(f"{number}. {pod.name} (revision {pod.revision}): {_intention(pod, connect)}")
    names = {pod.name for pod in going}
    for pod in pods.pods:
        if pod.name not in names:
            print(f"-  {pod.name} (revision {pod.revision}): stays")
    print(f"{len(going)} of {len(pods.pods)} Pods would be replaced; nothing was changed")
    return Code.DONE


def _intention(pod: Pod, connect: Connect) -> str:
    view = connect(pod).view()
    if view.kind is Kind.DRAINABLE:
        return f"{view.state}: drain, delete, wait for the replacement"
    if view.kind is Kind.NO_DRAIN:
        return f"has no drain: delete with its grace period of {pod.grace_s:g} s"
    return f"would stop here: {view.problem or view.kind.value}"


def _connect_api(flags: argparse.Namespace) -> client.ApiClient:
    try:
        return config.new_client_from_config(flags.kubeconfig, flags.context)
    except (ConfigException, OSError) as error:
        if flags.kubeconfig or flags.context:
            raise ReleaseError(Code.USAGE, f"kubeconfig: {error}") from None
    try:
        config.load_incluster_config()
    except ConfigException as error:
        raise ReleaseError(Code.USAGE, f"no kubeconfig, and not in a cluster: {error}") from None
    return client.ApiClient()


def _connector(flags: argparse.Namespace) -> Connect:
    token = _token(flags.token_file)
    if flags.connect == "pod-ip":
        return by_address(token)
    # A client of its own: while a port-forward opens, the official client exchanges the request
    # function of its ApiClient, under which the watch's thread would then call.
    return by_port_forward(client.CoreV1Api(_connect_api(flags)), flags.namespace, token)


def _options(flags: argparse.Namespace, before_s: float) -> Options:
    return Options(
        concurrency=flags.concurrency,
        min_serving=flags.min_serving,
        force=flags.force,
        everything=flags.all,
        created_before_s=before_s,
        limits=Limits(
            unreachable_s=flags.unreachable_timeout,
            drain_s=flags.drain_timeout,
            resume_s=flags.resume_timeout,
            replace_s=flags.replace_timeout,
        ),
    )


def _token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ReleaseError(Code.USAGE, f"cannot read --token-file {path}: {error}") from None
    if not token:
        raise ReleaseError(Code.USAGE, f"--token-file {path} is empty")
    return token


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _number(text: str, lowest: int) -> int:
    if not text.isdigit() or int(text) < lowest:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {lowest}")
    return int(text)


def _count(text: str) -> int:
    return _number(text, 1)


def _natural(text: str) -> int:
    return _number(text, 0)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return seconds


def _moment(text: str) -> float:
    from datetime import datetime, timezone

    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time like 2026-01-31T12:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _text(moment_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment_s))
