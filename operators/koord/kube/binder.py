"""Carries out placements: releases pods and binds them, and finds out what became of it.

Each write is repeated until its outcome is known. That is safe because it names the pod's uid and
says the same thing every time: a release that was carried out fails its own ``test`` when repeated,
a binding is refused because the pod has its node, and in both cases one look at the pod tells. The
order of steps for a gang is not known here, nor what an outcome means for it.
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
from koord.kube.release import PodForm, encode_annotations, make_release_patch
from koord.kube.retry import Backoff, is_transient
from koord.kube.translate.node_affinity import parse_affinity
from koord.kube.translate.pods import make_form
from koord.kube.wire import WirePod

MAX_IN_FLIGHT: Final = 32
PATIENCE_SECONDS: Final = 60.0
"""With an API server that is busy, starts anew or cannot be reached: all else waits, too."""
PATIENCE_WITH_FAILURES_SECONDS: Final = 5.0
"""With one that answers that it failed, as when an admission webhook does: others are served."""
_UNAVAILABLE: Final = 503


@dataclass(frozen=True, slots=True)
class Done:
    """The write is in force, whether by this request or by one before it."""


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod is not ours to place any more.

    It was deleted, is being deleted, is another one of the same name, or somebody else took our
    gate off and left it to its own scheduler.
    """


@dataclass(frozen=True, slots=True)
class BoundElsewhere:
    """The pod is bound to ``node``, or was released for that node only."""

    node: str


@dataclass(frozen=True, slots=True)
class StillGated:
    """A scheduling gate stands on the pod, so it cannot be bound."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The server does not accept the write: RBAC, an admission policy, or a defect of ours."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer that tells could be had in time; the write may still come into force.

    ``status`` is that of the last error answered, 0 if there was no answer.
    """

    status: int
    message: str


Outcome: TypeAlias = Done | PodGone | BoundElsewhere | StillGated | Refused | Unknown


class Binder:
    """Writes with bounded concurrency.

    ``forms`` tells by uid how a pod stands on the server (``PodTranslator.form_of``); pods that it
    does not know are read first. A write of which nothing definite is heard for ``patience``
    seconds, or less where the server says that it failed, is ``Unknown``.
    """

    def __init__(
        self,
        client: Client,
        forms: Callable[[str], PodForm | None],
        *,
        in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._client = client
        self._forms = forms
        self._backoff = Backoff()
        self._slots = asyncio.Semaphore(in_flight)

    @property
    def is_busy(self) -> bool:
        """Whether writes wait for others to be answered."""
        return self._slots.locked()

    async def release(
        self, assignment: Assignment, placement: Placement, *, patience: float = PATIENCE_SECONDS
    ) -> Outcome:
        """Take our gate off a pod and record the plan on it; this cannot be undone."""
        form = self._forms(assignment.pod.uid)
        annotations = encode_annotations(assignment, placement)
        return await self._carry_out(_Release(assignment, annotations, form), patience)

    async def bind(
        self, assignment: Assignment, placement: Placement, *, patience: float = PATIENCE_SECONDS
    ) -> Outcome:
        """Give a pod its node, and the same annotations again in the same write."""
        annotations = encode_annotations(assignment, placement)
        return await self._carry_out(_Bind(assignment, annotations), patience)

    async def _carry_out(self, step: "_Step", patience: float) -> Outcome:
        began = time.monotonic()
        for attempt in count():
            result = await self._attempt(step)
            if not isinstance(result, KubeError):
                return result
            delay = self._backoff.delay(attempt, result)
            if time.monotonic() + delay > began + min(patience, _patience_with(result)):
                return Unknown(*_said_in(result))
            await asyncio.sleep(delay)
        raise AssertionError("unreachable: count() does not end")

    async def _attempt(self, step: "_Step") -> Outcome | KubeError:
        """Write once; return what became of it, or an error that may pass."""
        if step.needs_look and (found := await self._look(step)) is not None:
            return found
        try:
            async with self._slots:
                await step.write(self._client)
        except NotFound:
            return PodGone()
        except KubeError as error:
            return error if is_transient(error) else await self._judge(step, error)
        return Done()

    async def _judge(self, step: "_Step", error: KubeError) -> Outcome | KubeError:
        """Tell what a refusal means; it means nothing if an attempt before was carried out.

        Its answer may have been lost, and rights may have gone since.
        """
        found = await self._look(step)
        if found is not None:
            return found
        if isinstance(error, Conflict | Invalid):
            # The pod was not what we took it for.
            step.rejections += 1
            if step.rejections == 1:
                return await self._attempt(step)
        return error if isinstance(error, Conflict) else Refused(*_said_in(error))

    async def _look(self, step: "_Step") -> Outcome | KubeError | None:
        """Read the pod; return what it shows of the outcome, None if nothing came of it yet.

        Whatever keeps us from reading, nothing is known then.
        """
        try:
            async with self._slots:
                found = await self._client.get(step.path, WirePod)
        except NotFound:
            return PodGone()
        except KubeError as error:
            return error
        step.needs_look = False
        if found.metadata.uid != step.pod.uid or found.metadata.deletion_timestamp is not None:
            return PodGone()
        if found.spec.node_name:
            return _compare(found.spec.node_name, step.node)
        return step.judge(found)


class _Step(ABC):
    """One kind of write to one pod."""

    def __init__(self, assignment: Assignment, annotations: dict[str, str]) -> None:
        self.pod, self.node = assignment.pod, assignment.node
        self.path = f"/api/v1/namespaces/{self.pod.namespace}/pods/{self.pod.name}"
        self.annotations = annotations
        self.needs_look = False
        self.rejections = 0

    @abstractmethod
    async def write(self, client: Client) -> None:
        """Send it."""

    @abstractmethod
    def judge(self, found: WirePod) -> Outcome | None:
        """Say what a pod without a node shows of the outcome; None if nothing came of it yet."""


class _Release(_Step):
    """Gate off, plan recorded, pinned if need be."""

    def __init__(
        self, assignment: Assignment, annotations: dict[str, str], form: PodForm | None
    ) -> None:
        super().__init__(assignment, annotations)
        self.needs_look = form is None
        self._form = form

    @override
    async def write(self, client: Client) -> None:
        if self._form is None:
            raise AssertionError("a release needs a look at the pod first")
        patch = make_release_patch(self.pod, self.node, self._form, self.annotations)
        await client.patch(self.path, patch, Media.JSON_PATCH)

    @override
    def judge(self, found: WirePod) -> Outcome | None:
        affinity = parse_affinity(bytes(found.spec.affinity))
        if any(gate.name == operators.PLACEMENT_GATE for gate in found.spec.scheduling_gates or ()):
            self._form = make_form(found, affinity.form)
            return None
        if self.pod.handling is Handling.RELEASE_PINNED and not affinity.pinned_to:
            return PodGone()
        return _compare(affinity.pinned_to or self.node, self.node)


class _Bind(_Step):
    """The node, and the annotations again, so that both are never seen apart."""

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
    def judge(self, found: WirePod) -> Outcome | None:
        return StillGated() if found.spec.scheduling_gates else None


def _compare(node: str, wanted: str) -> Outcome:
    return Done() if node == wanted else BoundElsewhere(node)


def _patience_with(error: KubeError) -> float:
    is_failure = isinstance(error, ServerUnavailable) and error.status != _UNAVAILABLE
    return PATIENCE_WITH_FAILURES_SECONDS if is_failure else PATIENCE_SECONDS


def _said_in(error: KubeError) -> tuple[int, str]:
    """Return status and message of an error; status 0: not an answer that the API knows."""
    if isinstance(error, ApiError):
        return error.status, error.message
    return 0, str(error)
