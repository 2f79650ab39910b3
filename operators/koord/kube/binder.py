"""Releases and binds pods, and determines the outcome of each write.

A write is repeated until its outcome is known. That is safe because it names the pod's uid and is
idempotent: a release that already succeeded fails its own ``test``, a binding is refused because
the pod has its node, and in both cases reading the pod gives the outcome. The order of steps for a
gang, and what an outcome means for it, are the caller's.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeAlias

from typing_extensions import override

from koord.api.keys import operators
from koord.core.plan import Assignment, Placement
from koord.core.pods import Handling
from koord.kube.client import Client, Media
from koord.kube.errors import (
    ApiError,
    Conflict,
    Invalid,
    KubeError,
    NotFound,
    ServerUnavailable,
)
from koord.kube.plan_keys import PlanKeys
from koord.kube.release import PodForm, encode_annotations, make_release_patch
from koord.kube.retry import Backoff, is_transient
from koord.kube.translate.node_affinity import parse_affinity
from koord.kube.translate.pods import make_form
from koord.kube.wire import WirePod

MAX_IN_FLIGHT: Final = 32
PATIENCE_SECONDS: Final = 60.0
"""While the API server is busy, restarting or unreachable: nothing else would succeed either."""
PATIENCE_WITH_FAILURES_SECONDS: Final = 5.0
"""While it responds with failures, as a broken admission webhook causes: others are served."""
_UNAVAILABLE: Final = 503


@dataclass(frozen=True, slots=True)
class Done:
    """The write took effect, by this request or an earlier one."""


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod is no longer ours to place.

    It is deleted, terminating or recreated, or another client removed our gate, which leaves the
    pod to its own scheduler.
    """


@dataclass(frozen=True, slots=True)
class BoundElsewhere:
    """The pod is bound to ``node``, or pinned to it."""

    node: str


@dataclass(frozen=True, slots=True)
class StillGated:
    """The pod has a scheduling gate, so it cannot be bound."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The server rejects the write: RBAC, an admission policy, or a bug of ours."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The outcome was not known in time; the write may still take effect.

    ``status`` is that of the last error response, 0 if there was none.
    """

    status: int
    message: str


Outcome: TypeAlias = Done | PodGone | BoundElsewhere | StillGated | Refused | Unknown


class Binder:
    """Writes with bounded concurrency.

    ``forms`` is ``PodTranslator.form_of``; pods that it does not know are read first. A write
    without a definite outcome after ``patience`` seconds, or less while the server responds with
    failures, is ``Unknown``. ``Done`` and ``Unknown`` leave the pod's resources taken.
    """

    def __init__(
        self,
        client: Client,
        forms: Callable[[str], PodForm | None],
        keys: PlanKeys,
        *,
        in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._client = client
        self._forms = forms
        self._keys = keys
        self._backoff = Backoff()
        self._slots = asyncio.Semaphore(in_flight)

    @property
    def is_busy(self) -> bool:
        return self._slots.locked()

    async def release(
        self, assignment: Assignment, placement: Placement, *, patience: float = PATIENCE_SECONDS
    ) -> Outcome:
        """Remove our gate from a pod and record the plan on it; this cannot be undone."""
        form = self._forms(assignment.pod.uid)
        annotations = encode_annotations(assignment, placement, self._keys)
        return await self._write_until_known(_Release(assignment, annotations, form), patience)

    async def bind(
        self, assignment: Assignment, placement: Placement, *, patience: float = PATIENCE_SECONDS
    ) -> Outcome:
        """Bind a pod to its node; the same annotations are written again with it."""
        annotations = encode_annotations(assignment, placement, self._keys)
        return await self._write_until_known(_Bind(assignment, annotations), patience)

    async def _write_until_known(self, step: "_Step", patience: float) -> Outcome:
        began = time.monotonic()
        for attempt in count():
            result = await self._attempt(step)
            if not isinstance(result, KubeError):
                return result
            delay = self._backoff.delay(attempt, result)
            if time.monotonic() + delay > began + min(patience, _patience_with(result)):
                return Unknown(*_describe(result))
            await asyncio.sleep(delay)
        raise AssertionError("unreachable: count() does not end")

    async def _attempt(self, step: "_Step") -> Outcome | KubeError:
        """Write once; return the outcome, or an error that may be transient."""
        if step.must_read and (found := await self._read(step)) is not None:
            return found
        try:
            async with self._slots:
                await step.write(self._client)
        except NotFound:
            return PodGone()
        except KubeError as error:
            return error if is_transient(error) else await self._interpret(step, error)
        return Done()

    async def _interpret(self, step: "_Step", error: KubeError) -> Outcome | KubeError:
        """Interpret a rejection: an earlier attempt may have succeeded without a response."""
        found = await self._read(step)
        if found is not None:
            return found
        if isinstance(error, Conflict | Invalid):
            # The pod had changed: retry once with its current form.
            step.rejections += 1
            if step.rejections == 1:
                return await self._attempt(step)
        return error if isinstance(error, Conflict) else Refused(*_describe(error))

    async def _read(self, step: "_Step") -> Outcome | KubeError | None:
        """Read the pod; return the outcome that it shows, an error, or None for no effect yet."""
        try:
            async with self._slots:
                found = await self._client.get(step.path, WirePod)
        except NotFound:
            return PodGone()
        except KubeError as error:
            return error
        step.must_read = False
        if found.metadata.uid != step.pod.uid or found.metadata.deletion_timestamp is not None:
            return PodGone()
        if found.spec.node_name:
            return _compare(found.spec.node_name, step.node)
        return step.outcome(found)


class _Step(ABC):
    """One kind of write to one pod."""

    def __init__(self, assignment: Assignment, annotations: dict[str, str]) -> None:
        self.pod, self.node = assignment.pod, assignment.node
        self.path = f"/api/v1/namespaces/{self.pod.namespace}/pods/{self.pod.name}"
        self.annotations = annotations
        self.must_read = False
        self.rejections = 0

    @abstractmethod
    async def write(self, client: Client) -> None: ...

    @abstractmethod
    def outcome(self, found: WirePod) -> Outcome | None:
        """Return the outcome that a pod without a node shows; None for no effect yet."""


class _Release(_Step):
    """Removes the gate, records the plan, and pins the pod if another scheduler binds it."""

    def __init__(
        self, assignment: Assignment, annotations: dict[str, str], form: PodForm | None
    ) -> None:
        super().__init__(assignment, annotations)
        self.must_read = form is None
        self._form = form

    @override
    async def write(self, client: Client) -> None:
        if self._form is None:
            raise AssertionError("the pod must be read before it is released")
        patch = make_release_patch(self.pod, self.node, self._form, self.annotations)
        await client.patch(self.path, patch, Media.JSON_PATCH)

    @override
    def outcome(self, found: WirePod) -> Outcome | None:
        affinity = parse_affinity(bytes(found.spec.affinity))
        if any(gate.name == operators.PLACEMENT_GATE for gate in found.spec.scheduling_gates or ()):
            self._form = make_form(found, affinity.form)
            return None
        if self.pod.handling is Handling.RELEASE_PINNED and not affinity.pinned_to:
            return PodGone()
        return _compare(affinity.pinned_to or self.node, self.node)


class _Bind(_Step):
    """Sets node and annotations in one write, so that watchers see both or neither."""

    @override
    async def write(self, client: Client) -> None:
        pod = self.pod
        metadata = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {**metadata, "annotations": self.annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }
        await client.post(f"{self.path}/binding", binding)

    @override
    def outcome(self, found: WirePod) -> Outcome | None:
        return StillGated() if found.spec.scheduling_gates else None


def _compare(node: str, wanted: str) -> Outcome:
    return Done() if node == wanted else BoundElsewhere(node)


def _patience_with(error: KubeError) -> float:
    is_failure = isinstance(error, ServerUnavailable) and error.status != _UNAVAILABLE
    return PATIENCE_WITH_FAILURES_SECONDS if is_failure else PATIENCE_SECONDS


def _describe(error: KubeError) -> tuple[int, str]:
    if isinstance(error, ApiError):
        return error.status, error.message
    return 0, str(error)
