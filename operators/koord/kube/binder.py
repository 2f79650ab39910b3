"""Releases and binds pods, and determines the outcome of each write.

A write is repeated until its outcome is known, for a time. That is safe because it names the pod's
uid and is idempotent: a release that already succeeded fails its own ``test``, a binding is refused
because the pod has its node, and in both cases reading the pod gives the outcome.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
from typing_extensions import override

from koord.api.keys import operators
from koord.api.reservation import ReservationCondition, ReservationStatus
from koord.api.resource import to_time
from koord.core.model.object_size import MOST_ANNOTATIONS, count_annotations
from koord.core.model.plan import Assignment, ObjectWrite, Placement
from koord.core.model.pods import AnnotationWrite, Handling
from koord.core.model.units import PODS
from koord.core.reservation.lifecycle import set_available
from koord.core.reservation.model import ReservationState
from koord.kube.client import Client, Media
from koord.kube.errors import (
    Conflict,
    Invalid,
    KubeError,
    NotFound,
    RequestTooLarge,
)
from koord.kube.object_writer import ObjectWriter, make_patch
from koord.kube.objects import ref_of_pod
from koord.kube.outcomes import (
    PATIENCE_SECONDS,
    BoundElsewhere,
    Done,
    Outcome,
    Oversized,
    PodGone,
    Refused,
    StillGated,
    Unknown,
    describe,
    repeat_until_known,
)
from koord.kube.plan_keys import PlanKeys, Trust, annotation_path
from koord.kube.release import (
    PodForm,
    Written,
    add_record,
    encode_metadata,
    encode_reservation,
    make_release_patch,
)
from koord.kube.retry import Backoff, is_transient
from koord.kube.status import applied_by
from koord.kube.translate.amounts import write_quantities
from koord.kube.translate.node_affinity import AffinityForm, parse_affinity
from koord.kube.translate.pods import make_form
from koord.kube.translate.reservations import read_status
from koord.kube.wire import WireCustomResource, WireObjectMeta, WirePod

MAX_IN_FLIGHT: Final = 32


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
        self.objects = ObjectWriter(client, self._slots)
        """Writes what has to be there before a pod is bound."""

    @property
    def is_busy(self) -> bool:
        return self._slots.locked()

    async def release(
        self, assignment: Assignment, placement: Placement, *, patience: float = PATIENCE_SECONDS
    ) -> Outcome:
        """Remove our gate from a pod and record the plan on it; this cannot be undone."""
        return await self._write_until_known(self._make_release(assignment, placement), patience)

    async def bind(
        self, assignment: Assignment, placement: Placement, *, patience: float = PATIENCE_SECONDS
    ) -> Outcome:
        """Bind a pod to its node; the same metadata is written again with it.

        A reservation gets its node as a part of its status.
        """
        return await self._write_until_known(self._make_bind(assignment, placement), patience)

    async def read_release(
        self, assignment: Assignment, placement: Placement, of: Unknown
    ) -> Outcome:
        """Return the outcome of a release that was ``Unknown``, long enough after it."""
        return await self._read_outcome(self._make_release(assignment, placement), of)

    async def read_bind(self, assignment: Assignment, placement: Placement, of: Unknown) -> Outcome:
        """Return the outcome of a binding that was ``Unknown``, long enough after it."""
        return await self._read_outcome(self._make_bind(assignment, placement), of)

    def _make_release(self, assignment: Assignment, placement: Placement) -> "_Release":
        written = encode_metadata(assignment, placement, self._keys, time.time_ns())
        return _Release(assignment, written, self._forms(assignment.pod.uid))

    def _make_bind(self, assignment: Assignment, placement: Placement) -> "_Reserve | _Bind":
        if assignment.pod.handling is Handling.RESERVE:
            held = encode_reservation(assignment, placement, self._keys)
            return _Reserve(assignment, held, self._keys)
        written = encode_metadata(assignment, placement, self._keys, time.time_ns())
        return _Bind(assignment, written, self._forms(assignment.pod.uid))

    async def _read_outcome(self, step: "_Step[Any]", of: Unknown) -> Outcome:
        outcome = await self._read(step)
        if isinstance(outcome, KubeError):
            return Unknown(*describe(outcome))
        return outcome or Refused(of.status, of.message)

    async def _write_until_known(self, step: "_Step[Any]", patience: float) -> Outcome:
        return await repeat_until_known(lambda: self._attempt(step), patience, self._backoff)

    async def _attempt(self, step: "_Step[Any]") -> Outcome | KubeError:
        """Write once; return the outcome, or an error that may be transient."""
        if step.must_read and (outcome := await self._read(step)) is not None:
            return outcome
        try:
            async with self._slots:
                await step.write(self._client)
        except NotFound:
            return PodGone()
        except KubeError as error:
            return error if is_transient(error) else await self._interpret(step, error)
        return Done()

    async def _interpret(self, step: "_Step[Any]", error: KubeError) -> Outcome | KubeError:
        """Interpret a rejection: an earlier attempt may have succeeded without a response."""
        outcome = await self._read(step)
        if outcome is not None:
            return outcome
        if isinstance(error, Conflict | Invalid):
            # The pod had changed: retry once with its current form.
            step.rejections += 1
            if step.rejections == 1:
                return await self._attempt(step)
        if isinstance(error, Conflict) and not step.is_guarded:
            return error
        return Refused(*describe(error), is_too_large=isinstance(error, RequestTooLarge))

    async def _read(self, step: "_Step[Any]") -> Outcome | KubeError | None:
        """Read the pod; return the outcome that it shows, an error, or None for no effect yet."""
        try:
            async with self._slots:
                current = await self._client.get(step.path, step.kind)
        except NotFound:
            return PodGone()
        except KubeError as error:
            return error
        step.must_read = False
        if current.metadata.uid != step.pod.uid or current.metadata.deletion_timestamp is not None:
            return PodGone()
        return step.outcome(current)


W = TypeVar("W", WirePod, WireCustomResource)


class _PatchedObject(msgspec.Struct, gc=False):
    """What a patch returns."""

    metadata: WireObjectMeta


_answer_decoder = msgspec.json.Decoder(_PatchedObject)


class _Step(ABC, Generic[W]):
    """One kind of write to one pod, or to the reservation that it stands for."""

    kind: type[W]

    def __init__(self, assignment: Assignment) -> None:
        self.pod, self.node = assignment.pod, assignment.node
        self.path = ref_of_pod(self.pod).path
        self.must_read = False
        self.is_guarded = False
        """Whether it is only written to the object as it was read."""
        self.rejections = 0

    @abstractmethod
    async def write(self, client: Client) -> None: ...

    @abstractmethod
    def outcome(self, current: W) -> Outcome | None:
        """Return the outcome that an object shows; None for no effect yet."""


class _Reserve(_Step[WireCustomResource]):
    """Writes the node of a reservation, unless somebody has changed it since it was read.

    What it holds besides amounts is written before, so that no watcher sees the node without it;
    so is the record on running pods that it takes in.
    """

    kind = WireCustomResource

    def __init__(self, assignment: Assignment, held: Mapping[str, str], keys: PlanKeys) -> None:
        super().__init__(assignment)
        self.must_read = True
        self._keys = keys
        writes = (write for allocation in assignment.allocations for write in allocation.writes())
        self._users = [write for write in writes if write.of]
        self._held = held
        self._version = ""
        self._has_held = not held

    async def _write_user(self, client: Client, write: AnnotationWrite) -> None:
        """Record on a running pod that it uses the reservation: its plan is signed again."""
        namespace, _, name = write.of.partition("/")
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        pod = await client.get(path, WirePod)
        annotations = pod.metadata.annotations or {}
        plan = annotations.get(operators.PLAN, "")
        if annotations.get(write.key) == write.value:
            return
        signature = annotations.get(operators.PLAN_SIGNATURE, "")
        if self._keys.judge(write.uid, plan, signature) is Trust.NONE:
            raise NotFound(404, "NotFound", f"{write.of} has no plan of the operators any more")
        text = add_record(plan, write.key, write.value)
        written = {
            operators.PLAN: text,
            operators.PLAN_SIGNATURE: self._keys.sign(write.uid, text),
            write.key: write.value,
        }
        change = ObjectWrite(
            path,
            {annotation_path(key): value for key, value in written.items()},
            {
                "/metadata/uid": write.uid,
                **{annotation_path(key): annotations.get(key) for key in written},
            },
        )
        patch = make_patch(change, {"metadata": {"uid": write.uid, "annotations": annotations}})
        await client.patch(path, patch, Media.JSON_PATCH)

    async def _write_reservation(self, client: Client) -> None:
        metadata = {"resourceVersion": self._version, "annotations": self._held}
        answer = await client.patch(self.path, {"metadata": metadata}, Media.MERGE_PATCH)
        self._version = _answer_decoder.decode(answer).metadata.resource_version
        self._has_held = True

    @override
    async def write(self, client: Client) -> None:
        for user in self._users:
            await self._write_user(client, user)
        if not self._has_held:
            await self._write_reservation(client)
        ref = ref_of_pod(self.pod)
        requests = {name: n for name, n in self.pod.shape.requests if name != PODS}
        now = to_time(time.time())
        state = set_available(ReservationState(), self.node, requests)
        status = ReservationStatus(
            phase=str(state.phase),
            node_name=state.node,
            allocatable=write_quantities(state.allocatable),
            conditions=[
                ReservationCondition(
                    type=condition.type,
                    status=str(condition.status),
                    reason=str(condition.reason),
                    message=condition.message,
                    last_probe_time=now,
                    last_transition_time=now,
                )
                for condition in state.conditions
            ],
        )
        body = {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "metadata": {"name": ref.name, "resourceVersion": self._version},
            "status": status.encode_set(),
        }
        form = applied_by("koord-placement")
        await client.patch(f"{self.path}/status", body, form.media, form.params)

    @override
    def outcome(self, reservation: WireCustomResource) -> Outcome | None:
        self._version = reservation.metadata.resource_version
        annotations = reservation.metadata.annotations or {}
        self._has_held = self._held.items() <= annotations.items()
        status = read_status(bytes(reservation.status))
        if status.is_over:
            return PodGone()
        return _compare(status.node, self.node) if status.node else None


class _PodStep(_Step[WirePod]):
    kind = WirePod

    def __init__(self, assignment: Assignment, written: Written, form: PodForm | None) -> None:
        super().__init__(assignment)
        self.written = written
        self.must_read = not written.fits_surely(form)

    @override
    def outcome(self, pod: WirePod) -> Outcome | None:
        if pod.spec.node_name:
            return _compare(pod.spec.node_name, self.node)
        return self.pending_outcome(pod)

    def _find_oversize(self, pod: WirePod) -> Oversized | None:
        present = pod.metadata.annotations or {}
        size = count_annotations({**present, **self.written.annotations})
        return (
            Oversized(size, size - count_annotations(present)) if size > MOST_ANNOTATIONS else None
        )

    @abstractmethod
    def pending_outcome(self, pod: WirePod) -> Outcome | None:
        """Return the outcome that a pod without a node shows; None for no effect yet."""


class _Release(_PodStep):
    """Removes the gate, records the plan, and pins the pod if another scheduler binds it."""

    def __init__(self, assignment: Assignment, written: Written, form: PodForm | None) -> None:
        super().__init__(assignment, written, form)
        self._assignment = assignment
        self._form = form

    @override
    def outcome(self, pod: WirePod) -> Outcome | None:
        is_left = self._assignment.is_open and bool(pod.spec.node_name)
        return Done() if is_left else super().outcome(pod)

    @override
    async def write(self, client: Client) -> None:
        if self._form is None:
            raise AssertionError("the pod must be read before it is released")
        patch = make_release_patch(self._assignment, self._form, self.written)
        await client.patch(self.path, patch, Media.JSON_PATCH)

    @override
    def pending_outcome(self, pod: WirePod) -> Outcome | None:
        affinity = parse_affinity(bytes(pod.spec.affinity))
        if any(gate.name == operators.PLACEMENT_GATE for gate in pod.spec.scheduling_gates or ()):
            self._form = make_form(pod, affinity.form)
            return self._find_oversize(pod)
        if self.pod.handling is Handling.RELEASE_PINNED and not affinity.pinned_to:
            plan = (pod.metadata.annotations or {}).get(operators.PLAN)
            is_ours = self._assignment.is_open and plan == self.written.annotations[operators.PLAN]
            return Done() if is_ours else PodGone()
        return _compare(affinity.pinned_to or self.node, self.node)


class _Bind(_PodStep):
    """Sets node and annotations in one write, so that watchers see both or neither.

    Labels, which few vendors' plugins need, are written before. A pod whose annotations leave
    little room is read before, and must not have changed since.
    """

    def __init__(self, assignment: Assignment, written: Written, form: PodForm | None) -> None:
        super().__init__(assignment, written, form)
        self._form = form
        self._version = ""

    @override
    async def write(self, client: Client) -> None:
        pod = self.pod
        metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        metadata["annotations"] = self.written.annotations
        if self.is_guarded:
            metadata["resourceVersion"] = self._version
        if not pod.is_gated and (before := self._make_patch_before()):
            # Of a Binding only annotations reach the pod before Kubernetes 1.35. What had our gate
            # has its labels and its limit since its release.
            before["metadata"]["uid"] = pod.uid
            await client.patch(self.path, before, Media.MERGE_PATCH)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }
        await client.post(f"{self.path}/binding", binding)

    def _make_patch_before(self) -> dict[str, Any]:
        """Return what a Binding cannot write; empty if that is nothing."""
        patch: dict[str, Any] = {}
        limit = self.written.time_limit
        if limit is not None and not (self._form and self._form.is_limited_to(limit)):
            patch["spec"] = {"activeDeadlineSeconds": limit}
        if self.written.labels or patch:
            patch["metadata"] = {"labels": self.written.labels}
        return patch

    @override
    def pending_outcome(self, pod: WirePod) -> Outcome | None:
        if pod.spec.scheduling_gates:
            return StillGated()
        self._form = make_form(pod, AffinityForm())
        self._version = pod.metadata.resource_version
        self.is_guarded = not self.written.fits_surely(self._form)
        return self._find_oversize(pod)


def _compare(node: str, wanted: str) -> Outcome:
    return Done() if node == wanted else BoundElsewhere(node)
