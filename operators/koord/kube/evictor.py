"""Evicts pods through ``policy/v1``, so that PodDisruptionBudgets count.

An eviction names the uid of its pod: a recreated pod of the same name is never evicted. Pods that
are evicted together are all *marked* with a condition before. The mark survives a crash, so that
the next process completes the eviction; a policy of the base refuses us all evictions without it.
Callers decide which pods to evict.

A pod that stands for a reservation has no mark, and no budget. Evicting it takes its node away, in
one write: it waits for another.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from koord.api.keys import operators
from koord.api.keys.preemption import SOFT_EVICTION
from koord.core.model.budgets import Budget, split_by_budgets
from koord.core.model.pods import Handling, Pod, PodPhase, PreemptedBy
from koord.core.model.selectors import Requirement, SelectorOperator
from koord.core.model.text import format_time
from koord.core.reservation.lifecycle import READY, SCHEDULED
from koord.core.reservation.model import ReservationPhase
from koord.kube.client import Client, Media
from koord.kube.errors import (
    Conflict,
    Forbidden,
    Garbled,
    Invalid,
    KubeError,
    NotFound,
    RequestTooLarge,
    TooManyRequests,
)
from koord.kube.objects import ref_of_pod
from koord.kube.preemption_records import encode_preempted_by, encode_soft_eviction
from koord.kube.retry import is_transient
from koord.kube.status import ConditionPatch, StatusPatch, applied_by, render
from koord.kube.translate.pod_constraints import WireSelector, parse_selector
from koord.kube.translate.reservations import read_status
from koord.kube.wire import WireCustomResource, WireObjectMeta

log = logging.getLogger(__name__)


class Eviction(StrEnum):
    """Outcome of one eviction."""

    EVICTED = "Evicted"
    GONE = "Gone"
    """Deleted or recreated before."""
    PROTECTED = "Protected"
    """A PodDisruptionBudget does not allow it now."""
    REFUSED = "Refused"
    """Rejected by the server."""
    UNKNOWN = "Unknown"
    """No response; it may have been evicted."""

    @property
    def is_done(self) -> bool:
        return self in {Eviction.EVICTED, Eviction.GONE}

    @property
    def is_denied(self) -> bool:
        return self in {Eviction.PROTECTED, Eviction.REFUSED}


class _BudgetSpec(Struct, rename="camel"):
    selector: WireSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class _BudgetStatus(Struct, rename="camel"):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    disrupted_pods: dict[str, Any] | None = None


class _WireBudget(Struct):
    """A PodDisruptionBudget."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: _BudgetSpec = msgspec.field(default_factory=_BudgetSpec)
    status: _BudgetStatus = msgspec.field(default_factory=_BudgetStatus)


class _Budgets(Struct):
    items: list[_WireBudget] | None = None


_ReadBudgets: TypeAlias = tuple[tuple[Budget, bool], ...]
"""Budgets, and whether they may let a pod go that is not ready although they allow nothing."""


class _PodToEvict(Struct, frozen=True):
    """The fields of a pod that budgets match."""

    namespace: str
    name: str
    labels: dict[str, str]


_EVERYTHING: Final = (Requirement("", SelectorOperator.DOES_NOT_EXIST),)
"""An empty selector matches everything here, but nothing in preemption."""
_REASON: Final = "OverEntitlement"
_KEPT: Final = "EvictionRefused"
_CANCELLED: Final = "ReclaimCancelled"
_NOT_ALLOWED: Final = "not evicted: a PodDisruptionBudget or the API server does not allow it"
_DISRUPTED: Final = "DisruptionTarget"
_BY_SCHEDULER: Final = "PreemptionByScheduler"
_PREEMPTED: Final = "Preempted"
_RESTARTED: Final = "GangRestarted"
_RESTARTS: Final = "its gang has lost members and starts anew as a whole"
_SPARED: Final = "NotPreempted"
MIGRATED: Final = "PodMigration"
"""The reason of the condition of pods that are moved to another node."""
_MANAGER: Final = "koord-placement"
"""Owns the node of a reservation that it placed, so that not applying it takes it away."""
_LOST_TO: Final = {
    _PREEMPTED: "its room was given to a unit of higher priority: see the event Preempted",
    _REASON: "its room was given to a unit whose quota is entitled to it: see the event "
    "OverEntitlement",
}
"""Why a reservation has lost its node, by reason."""
_SEVERAL: Final = "more than one PodDisruptionBudget"
"""What the API server answers, as an error of its own, if several budgets cover a pod."""
_ONLY_MARKED: Final = "koord-limit-evictions"
"""The policy that looks whether a pod is marked, in a copy that may be a moment old."""
_MARK_PAUSES: Final = (0.1, 0.4, 1.5)
_BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"
_OTHER_UID: Final = "metadata.uid: Invalid value"
"""What the API server answers to a change of a pod that was recreated."""
_ALWAYS: Final = "AlwaysAllow"
BUDGETS_SECONDS: Final = 2.0
"""How long budgets that allow too little are not read again."""


class Evictor:
    """Writes evictions and marks; every method returns after the server's response."""

    def __init__(
        self, client: Client, wall_clock: Callable[[], float], grace_limit: float | None = None
    ) -> None:
        self._client = client
        self._wall_clock = wall_clock
        self._grace_limit = grace_limit
        """No evicted pod gets more seconds to stop, whatever its owner wants; None: no limit."""
        self._read_budgets: dict[str, tuple[float, _ReadBudgets]] = {}
        """Namespace -> when its budgets were read, and what they were."""

    async def may_go(self, pods: tuple[Pod, ...]) -> bool:
        """Whether all pods could be evicted now, by dry run and by their budgets together."""
        return (await self.check(pods)).is_done

    async def check(self, pods: tuple[Pod, ...]) -> Eviction:
        """Return what would come of evicting all pods now: the first outcome that prevents it."""
        pods = tuple(pod for pod in pods if pod.handling is not Handling.RESERVE)
        # The cheaper check first: it may be repeated often.
        together = await self._check_budgets(pods)
        if not together.is_done:
            return together
        for pod in pods:
            outcome = await self._post(pod, is_dry=True)
            if not outcome.is_done:
                return outcome
        return Eviction.EVICTED

    async def mark(self, pod: Pod, text: str, *, seconds: float) -> bool:
        """Mark a pod; if it has any ``seconds`` to end by itself, an annotation says so."""
        if pod.handling is Handling.RESERVE:
            return True
        condition = ConditionPatch(operators.OVER_ENTITLEMENT, True, _REASON, text)
        return await self._set_conditions(pod, (condition,), self._ask(text, seconds))

    async def unmark(self, pod: Pod, cancelled: str = "") -> bool:
        """Take a mark back, because eviction is not allowed or, with a text, was ``cancelled``."""
        if pod.handling is Handling.RESERVE:
            return True
        reason, text = (_CANCELLED, cancelled) if cancelled else (_KEPT, _NOT_ALLOWED)
        condition = ConditionPatch(operators.OVER_ENTITLEMENT, False, reason, text)
        return await self._set_conditions(pod, (condition,), _clear_soft_eviction(pod))

    async def protect(self, pod: Pod, text: str, since: float) -> bool:
        """Write that PodDisruptionBudgets protect a pod, and since when."""
        reason = operators.PROTECTED_BY_BUDGET
        condition = ConditionPatch(operators.OVER_ENTITLEMENT, False, reason, text)
        return await self._set_conditions(pod, (condition,), _clear_soft_eviction(pod), since)

    def _ask(self, reason: str, seconds: float) -> dict[str, str]:
        return encode_soft_eviction(reason, self._wall_clock(), seconds) if seconds else {}

    async def mark_preempted(self, pod: Pod, by: PreemptedBy, text: str, *, seconds: float) -> bool:
        """Mark a victim as kube-scheduler does, and with a condition that only we set."""
        if pod.handling is Handling.RESERVE:
            return True
        conditions = (
            ConditionPatch(operators.PREEMPTED, True, _PREEMPTED, text),
            ConditionPatch(_DISRUPTED, True, _BY_SCHEDULER, text),
        )
        request = self._ask(f"preempted by {by.preemptor} (plan {by.plan_id})", seconds)
        return await self._set_conditions(pod, conditions, encode_preempted_by(by) | request)

    async def unmark_preempted(self, pod: Pod, text: str) -> bool:
        if pod.handling is Handling.RESERVE:
            return True
        conditions = (
            ConditionPatch(operators.PREEMPTED, False, _SPARED, text),
            ConditionPatch(_DISRUPTED, False, _SPARED, text),
        )
        written = {operators.PREEMPTED_BY: None} | _clear_soft_eviction(pod)
        return await self._set_conditions(pod, conditions, written)

    async def evict(self, pod: Pod) -> Eviction:
        """Evict a pod for a unit of higher priority."""
        return await self._evict(pod, _PREEMPTED)

    async def reclaim(self, pod: Pod) -> Eviction:
        """Evict a pod because its quota uses too much."""
        return await self._evict(pod, _REASON)

    async def overrule(self, pod: Pod) -> Eviction:
        """Delete a pod because its quota uses too much, whatever its budgets say."""
        if pod.handling is Handling.RESERVE:
            return await self._release(pod, _REASON)
        return await self.delete(pod)

    async def restart(self, pod: Pod) -> Eviction:
        """Evict a member of a gang that starts anew as a whole."""
        marked = ConditionPatch(_DISRUPTED, True, _RESTARTED, _RESTARTS)
        await self._set_conditions(pod, (marked,), {})
        outcome = await self._evict(pod, _PREEMPTED)
        if outcome.is_denied:
            spared = ConditionPatch(_DISRUPTED, False, _KEPT, _NOT_ALLOWED)
            await self._set_conditions(pod, (spared,), {})
        return outcome

    async def migrate(self, pod: Pod, text: str, *, deletes: bool, grace: int | None) -> Eviction:
        """Evict or delete a pod whose place is reserved elsewhere; ``grace`` counts if it deletes.

        It is marked in the moment in which it goes: its job says that it is to go.
        """
        marked = ConditionPatch(_DISRUPTED, True, MIGRATED, text)
        if not await self._set_conditions(pod, (marked,), {}):
            return Eviction.UNKNOWN
        if deletes:
            delete = self._client.delete(_path_of(pod), uid=pod.uid, grace_seconds=grace)
            outcome = await _outcome_of(delete)
        else:
            outcome = await self._post(pod, is_dry=False)
        if outcome.is_denied:
            spared = ConditionPatch(_DISRUPTED, False, _KEPT, _NOT_ALLOWED)
            await self._set_conditions(pod, (spared,), {})
        return outcome

    async def ask_to_end(self, pod: Pod, text: str) -> Eviction:
        """Ask a pod to end by itself; whoever made it decides when."""
        metadata = {"uid": pod.uid, "annotations": encode_soft_eviction(text, self._wall_clock())}
        write = self._client.patch(_path_of(pod), {"metadata": metadata}, Media.MERGE_PATCH)
        return await _outcome_of(write)

    async def _evict(self, pod: Pod, reason: str) -> Eviction:
        if pod.handling is Handling.RESERVE:
            return await self._release(pod, reason)
        return await self._post(pod, is_dry=False)

    async def delete(self, pod: Pod) -> Eviction:
        """Delete a pod with its grace period, whatever its PodDisruptionBudgets say."""
        if pod.handling is Handling.RESERVE:
            return await self._release(pod, _PREEMPTED)
        grace = self._cut_grace(pod)
        return await _outcome_of(
            self._client.delete(_path_of(pod), uid=pod.uid, grace_seconds=grace)
        )

    def _cut_grace(self, pod: Pod) -> int | None:
        """Return the grace period of a pod that wants too much; None: what it wants."""
        most = self._grace_limit
        return None if most is None or pod.grace <= most else int(most)

    async def _release(self, pod: Pod, reason: str) -> Eviction:
        """Take the node of a reservation away; refused if another scheduler gave it."""
        ref, moment = ref_of_pod(pod), format_time(self._wall_clock())
        lost = {"status": "False", "reason": reason, "message": _LOST_TO[reason]}
        times = {"lastProbeTime": moment, "lastTransitionTime": moment}
        conditions = [
            {"type": condition_type, **lost, **times} for condition_type in (SCHEDULED, READY)
        ]
        body = {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "metadata": {"name": ref.name, "uid": pod.uid},
            "status": {"phase": str(ReservationPhase.PENDING), "conditions": conditions},
        }
        form = applied_by(_MANAGER)
        write = self._client.patch(f"{ref.path}/status", body, form.media, form.params)
        outcome = await _outcome_of(write)
        return await self._confirm_release(pod) if outcome is Eviction.EVICTED else outcome

    async def _confirm_release(self, pod: Pod) -> Eviction:
        try:
            reservation = await self._client.get(ref_of_pod(pod).path, WireCustomResource)
        except KubeError:
            return Eviction.UNKNOWN
        keeps = read_status(bytes(reservation.status)).node == pod.node
        return Eviction.REFUSED if keeps else Eviction.EVICTED

    async def list_budgets(self) -> tuple[Budget, ...]:
        return await list_budgets(self._client)

    async def _post(self, pod: Pod, *, is_dry: bool) -> Eviction:
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if is_dry:
            options["dryRun"] = ["All"]
        if (grace := self._cut_grace(pod)) is not None:
            options["gracePeriodSeconds"] = grace
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {
                "name": pod.name,
                "namespace": pod.namespace,
                "labels": {operators.EVICTS_MARKED: "true"},
            },
            "deleteOptions": options,
        }
        try:
            await self._post_when_seen(f"{_path_of(pod)}/eviction", body)
        except TooManyRequests:
            return Eviction.PROTECTED
        except NotFound:
            return Eviction.GONE
        except Conflict as error:
            return Eviction.GONE if "UID" in error.message else Eviction.REFUSED
        except KubeError as error:
            if _SEVERAL in str(error):
                return Eviction.PROTECTED
            return Eviction.UNKNOWN if is_transient(error) else Eviction.REFUSED
        return Eviction.EVICTED

    async def _post_when_seen(self, path: str, body: Any) -> None:
        """Evict; again where the API server that judges has not seen yet that the pod is marked."""
        for pause in (*_MARK_PAUSES, None):
            try:
                await self._client.post(path, body)
            except Forbidden as error:
                if pause is None or _ONLY_MARKED not in error.message:
                    raise
                await asyncio.sleep(pause)
            else:
                return

    async def _check_budgets(self, pods: Iterable[Pod]) -> Eviction:
        """Return whether a budget is exceeded if all pods are evicted.

        Budgets ignore pods that are pending, completed or terminating, as kube-apiserver does
        (``canIgnorePDB`` of pods/eviction).
        """
        covered = [
            _PodToEvict(pod.namespace, pod.name, dict(pod.profile.labels))
            for pod in pods
            if pod.is_alive and pod.phase is not PodPhase.PENDING
        ]
        try:
            for namespace in sorted({pod.namespace for pod in covered}):
                inside = [pod for pod in covered if pod.namespace == namespace]
                if await self._is_exceeded(namespace, inside):
                    return Eviction.PROTECTED
        except (KubeError, msgspec.DecodeError, ValueError):
            return Eviction.UNKNOWN
        return Eviction.EVICTED

    async def _is_exceeded(self, namespace: str, pods: Collection[_PodToEvict]) -> bool:
        """Whether budgets of one namespace forbid it; what was read a moment ago may only forbid.

        So many who ask in vain cost one request, and nobody goes by numbers that were used up.
        """
        now = self._wall_clock()
        at, budgets = self._read_budgets.get(namespace, (0.0, ()))
        if now < at + BUDGETS_SECONDS and _are_exceeded(budgets, pods):
            return True
        body = await self._client.list(
            f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        )
        listed = msgspec.json.decode(body, type=_Budgets).items or ()
        fresh = tuple((_make_budget(wire, namespace), _is_lenient(wire)) for wire in listed)
        recent = {
            name: read
            for name, read in self._read_budgets.items()
            if now < read[0] + BUDGETS_SECONDS
        }
        self._read_budgets = recent | {namespace: (now, fresh)}
        return _are_exceeded(fresh, pods)

    async def _set_conditions(
        self,
        pod: Pod,
        conditions: tuple[ConditionPatch, ...],
        annotations: Mapping[str, str | None],
        since: float | None = None,
    ) -> bool:
        """Write conditions; of a pod that is gone there is nothing to write."""
        status = render(StatusPatch(conditions), {}, since or self._wall_clock())
        try:
            await self._write_conditions(pod, status, annotations)
        except NotFound:
            return True
        except (KubeError, Garbled) as error:
            if isinstance(error, Invalid) and _OTHER_UID in error.message:
                return True
            log.warning("Cannot mark a pod", extra={"pod": pod.key, "problem": str(error)})
            return False
        return True

    async def _write_conditions(
        self, pod: Pod, status: Mapping[str, Any], annotations: Mapping[str, str | None]
    ) -> None:
        """Write conditions and, where they fit, annotations.

        The owner of a pod can fill it, so that less fits. The conditions say all that counts.
        """
        try:
            await self._patch_status(pod, status, annotations)
        except RequestTooLarge:
            less = {key: value for key, value in annotations.items() if value is None}
            await self._patch_status(pod, status, less)

    async def _patch_status(
        self, pod: Pod, status: Mapping[str, Any], annotations: Mapping[str, str | None]
    ) -> None:
        metadata: dict[str, Any] = {"uid": pod.uid}
        if annotations:
            metadata["annotations"] = annotations
        body = {"metadata": metadata, "status": status}
        await self._client.patch(f"{_path_of(pod)}/status", body, Media.STRATEGIC_MERGE_PATCH)


async def _outcome_of(write: Awaitable[object]) -> Eviction:
    try:
        await write
    except (NotFound, Conflict):
        return Eviction.GONE
    except KubeError as error:
        return Eviction.UNKNOWN if is_transient(error) else Eviction.REFUSED
    return Eviction.EVICTED


async def list_budgets(client: Client) -> tuple[Budget, ...]:
    """Return the PodDisruptionBudgets of all namespaces."""
    listed = msgspec.json.decode(await client.list(_BUDGETS), type=_Budgets).items or ()
    return tuple(_make_budget(budget, budget.metadata.namespace) for budget in listed)


def _clear_soft_eviction(pod: Pod) -> dict[str, None]:
    """Return what takes back that a pod was asked to end by itself."""
    return {SOFT_EVICTION: None} if pod.soft_eviction else {}


def _make_budget(wire: _WireBudget, namespace: str) -> Budget:
    selector = parse_selector(wire.spec.selector)
    return Budget(
        namespace,
        _EVERYTHING if selector == () else selector,
        wire.status.disruptions_allowed,
        frozenset(wire.status.disrupted_pods or ()),
    )


def _is_lenient(wire: _WireBudget) -> bool:
    """Whether the API server may evict a pod that is not ready although nothing is allowed."""
    healthy, wanted = wire.status.current_healthy, wire.status.desired_healthy
    return wire.spec.unhealthy_pod_eviction_policy == _ALWAYS or healthy >= wanted > 0


def _are_exceeded(read: _ReadBudgets, pods: Collection[_PodToEvict]) -> bool:
    """Whether budgets forbid that all pods go; several that cover one pod always do.

    Of a single pod the API server itself knows whether it is ready, and is asked if that decides.
    """
    budgets = [budget for budget, _ in read]
    if any(sum(budget.covers(pod) for budget in budgets) > 1 for pod in pods):
        return True
    binding = [budget for budget, is_lenient in read if len(pods) > 1 or not is_lenient]
    return bool(split_by_budgets(pods, binding).violating)


def _path_of(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
