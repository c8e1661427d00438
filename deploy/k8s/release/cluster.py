"""The Kubernetes edge: one worker set, watched; Pods marked and deleted. The official client."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import urllib3
from kubernetes import client, watch

from .codes import Code, ReleaseError
from .model import Pod, PodSet
from .pods import MARK, is_over, pod_of

logger = logging.getLogger(__name__)

WATCH_S = 30
RETRY_S = 1.0
STALE_S = 60.0  # this long without a word from the API server the release cannot go on
CALL_S = 15.0
FAULTS = (client.ApiException, urllib3.exceptions.HTTPError, OSError)


class Target:
    """A StatefulSet with `updateStrategy: OnDelete`, or Pods by label (Grove, other controllers).

    ``selector`` finds the Pods; ``revision_label`` is the label that their controller stamps.
    """

    def __init__(
        self,
        apps: client.AppsV1Api,
        namespace: str,
        statefulset: str | None,
        selector: str | None,
        revision_label: str,
        revision: str | None = None,
    ) -> None:
        self._apps = apps
        self._namespace = namespace
        self._name = statefulset
        self._revision = revision
        self.revision_label = revision_label
        self.selector = selector or self._own_selector()

    def revision(self, patience_s: float = 30.0) -> str | None:
        """What the controller gives replacements now; None where it does not say. Right after an
        apply the controller may not have seen the new template: it is waited for."""
        if self._revision or self._name is None:
            return self._revision
        give_up_s = time.monotonic() + patience_s
        while True:
            found = self._read()
            if (found.status.observed_generation or 0) >= (found.metadata.generation or 0):
                return found.status.update_revision or None
            if time.monotonic() >= give_up_s:
                raise ReleaseError(
                    Code.UNREACHABLE, f"the controller does not see the last change of {self._name}"
                )
            time.sleep(RETRY_S)

    def _own_selector(self) -> str:
        found = self._read()
        strategy = found.spec.update_strategy.type
        if strategy != "OnDelete":
            raise ReleaseError(
                Code.USAGE,
                f"{self._name} has updateStrategy {strategy}: its controller deletes Pods by "
                "itself, undrained; set OnDelete",
            )
        labels = found.spec.selector.match_labels or {}
        return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))

    def _read(self) -> Any:
        try:
            return self._apps.read_namespaced_stateful_set(
                self._name, self._namespace, _request_timeout=CALL_S
            )
        except FAULTS as error:
            raise ReleaseError(
                _code(error), f"StatefulSet {self._name}: {_reason(error)}"
            ) from None


class Cluster:
    """Keeps the Pods of a set current in a thread of its own; start, use, close."""

    def __init__(self, core: client.CoreV1Api, namespace: str, target: Target, port: int) -> None:
        self._core = core
        self._namespace = namespace
        self._target = target
        self._port = port
        self._pods: dict[str, Pod] = {}
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._heard_s = time.monotonic()
        self._fault: str | None = None
        self._watch: watch.Watch | None = None
        self._thread = threading.Thread(target=self._follow, name="watch pods", daemon=True)

    def start(self) -> None:
        """Raises ReleaseError when the first list fails."""
        try:
            self._list()
        except FAULTS as error:
            raise ReleaseError(_code(error), f"cannot list the Pods: {_reason(error)}") from None
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._watch is not None:
            self._watch.stop()

    def snapshot(self, revision: str | None) -> PodSet:
        """Raises ReleaseError when the API server has been silent for too long."""
        with self._lock:
            silent_s = time.monotonic() - self._heard_s
            if silent_s > STALE_S:
                raise ReleaseError(
                    Code.UNREACHABLE,
                    f"no word from the API server for {silent_s:.0f} s: {self._fault}",
                )
            return PodSet(tuple(self._pods.values()), revision)

    def wait_change(self, timeout_s: float) -> None:
        self._changed.wait(timeout_s)
        self._changed.clear()

    def mark(self, pod: Pod, value: str | None) -> str | None:
        """Set or remove the annotation that tells a later run what this one began."""
        body = {"metadata": {"annotations": {MARK: value}}}
        return self._call(
            lambda: self._core.patch_namespaced_pod(
                pod.name, self._namespace, body, _request_timeout=CALL_S
            )
        )

    def delete(self, pod: Pod) -> str | None:
        """Delete this very Pod, with its own grace period: a namesake is left alone."""
        body = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=pod.uid))
        return self._call(
            lambda: self._core.delete_namespaced_pod(
                pod.name, self._namespace, body=body, _request_timeout=CALL_S
            )
        )

    def _call(self, call: Callable[[], Any]) -> str | None:
        """None, or why it failed. A Pod that is gone already is what was wanted."""
        try:
            call()
        except client.ApiException as error:
            return None if error.status in (404, 409) else _reason(error)
        except FAULTS as error:
            return _reason(error)
        return None

    def _list(self) -> str:
        found = self._core.list_namespaced_pod(
            self._namespace, label_selector=self._target.selector, _request_timeout=CALL_S
        )
        pods = [self._pod(item) for item in found.items if not is_over(item)]
        with self._lock:
            self._pods = {pod.uid: pod for pod in pods}
            self._heard_s = time.monotonic()
        self._changed.set()
        return str(found.metadata.resource_version)

    def _follow(self) -> None:
        """List, then watch from there; anything that goes wrong starts over with a list."""
        while not self._closed.is_set():
            try:
                version = self._list()
                self._watch = watch.Watch()
                events = self._watch.stream(
                    self._core.list_namespaced_pod,
                    self._namespace,
                    label_selector=self._target.selector,
                    resource_version=version,
                    timeout_seconds=WATCH_S,
                    _request_timeout=(CALL_S, WATCH_S + CALL_S),
                )
                for event in events:
                    self._apply(event["type"], event["object"])
            except FAULTS as error:
                self._fault = _reason(error)
                logger.debug("watch: %s", self._fault)
                self._closed.wait(RETRY_S)

    def _apply(self, kind: str, item: Any) -> None:
        pod = self._pod(item)
        with self._lock:
            self._heard_s = time.monotonic()
            if kind == "DELETED" or is_over(item):
                self._pods.pop(pod.uid, None)
            else:
                self._pods[pod.uid] = pod
        self._changed.set()

    def _pod(self, item: Any) -> Pod:
        return pod_of(item, self._target.revision_label, self._port)


def _reason(error: BaseException) -> str:
    if isinstance(error, client.ApiException):
        return f"{error.status} {error.reason}".strip()
    return str(error) or type(error).__name__


def _code(error: BaseException) -> Code:
    absent = isinstance(error, client.ApiException) and error.status == 404
    return Code.USAGE if absent else Code.UNREACHABLE
