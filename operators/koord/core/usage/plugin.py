"""Follows the pods of a cluster, and counts what they hold while this process leads.

Only who plans counts: a process that stands by would count the same again. What was held before
counts in the process that led then, so the sum over all processes is what was held, but for the
seconds in which nobody led.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from koord.core.engine.plugin import Plugin
from koord.core.model.nodes import Node
from koord.core.model.pods import Handling, Pod, hold_owner_of
from koord.core.usage.counters import ResourceLabels, UsageCounters, UsageKind, UsageLabels
from koord.core.usage.lost import find_cause, find_lost
from koord.core.usage.segments import MS_PER_SECOND, Holder, make_segment, start_of
from koord.core.usage.slices import SliceSlots
from koord.isolation import Isolation

if TYPE_CHECKING:
    from koord.core.engine.state_view import StateView

SAMPLE_SECONDS: Final = 1.0
"""How often the amounts of quotas are looked at, at most."""
_QUOTAS: Final = "quotas"
_WAITING: Final = "waiting"
"""Holders that are no pods; no uid looks like these."""


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """Whether it is counted what pods hold."""

    is_on: bool = False


@dataclass(frozen=True, slots=True)
class PodHolding:
    """What a pod holds: thousandths of GPUs without slices, sevenths of GPUs, other resources."""

    milli_gpus: int
    slices: int = 0
    amounts: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class UsageSources:
    """What is known outside of this domain.

    ``measure`` returns what a pod holds, ``quota_of`` its quota (empty: none), ``model_of`` the
    model of the GPUs of a node, ``version_of`` another object as soon as pods may count for other
    quotas, ``levels_of`` what quotas borrow and are owed, by row.
    """

    measure: Callable[[Pod], PodHolding]
    quota_of: Callable[["StateView", Pod], str]
    model_of: Callable[[Node], str]
    version_of: Callable[["StateView"], object]
    levels_of: Callable[["StateView"], Mapping[UsageLabels, int]]


class UsageTimes(Plugin):
    """What pods hold."""

    name = "usage"

    def __init__(self, sources: UsageSources) -> None:
        self._sources = sources
        self._gpus = UsageCounters[UsageLabels]()
        self._resources = UsageCounters[ResourceLabels]()
        self._pods: dict[str, Pod] = {}
        self._ended: dict[str, Pod] = {}
        """Pods that hold nothing any more and were counted, as they were at last."""
        self._changed: set[str] = set()
        """Pods (uid) to be counted again; in a cycle, which knows the time."""
        self._on_node: dict[str, set[str]] = {}
        self._users: dict[str, set[str]] = defaultdict(set)
        """What holds room (uid) -> pods (uid) that use it."""
        self._used_of: dict[str, str] = {}
        self._slots: dict[str, SliceSlots] = defaultdict(SliceSlots)
        self._models: dict[str, str] = {}
        self._milli: dict[str, int] = {}
        self._version: object = None
        self._is_counting = False
        self._sampled = float("-inf")
        self._isolated = Isolation("usage")

    @override
    def upsert_node(self, row: int, node: Node) -> None:
        model = self._sources.model_of(node)
        if self._models.get(node.name) != model:
            self._models[node.name] = model
            self._changed |= self._on_node.get(node.name, set())

    @override
    def remove_node(self, row: int, name: str) -> None:
        self._models.pop(name, None)

    @override
    def observe(self, _before: Pod | None, pod: Pod) -> None:
        if not pod.node or pod.phase.is_terminal or pod.handling is Handling.STAND_IN:
            self._end(pod.uid, pod)
            return
        before = self._pods.get(pod.uid)
        if before is not None and before.node != pod.node:
            self._leave_node(before)
        self._pods[pod.uid] = pod
        self._on_node.setdefault(pod.node, set()).add(pod.uid)
        hold = hold_owner_of(pod.allocations)
        if self._used_of.get(pod.uid, "") != hold:
            self._use(pod.uid, hold)
        self._changed.add(pod.uid)

    @override
    def forget(self, uid: str) -> None:
        if uid in self._pods:
            self._end(uid, self._pods[uid])

    def _end(self, uid: str, last: Pod) -> None:
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self._leave_node(pod)
        self._use(uid, "")
        self._users.pop(uid, None)
        self._ended[uid] = last
        self._changed.add(uid)

    def _leave_node(self, pod: Pod) -> None:
        on_node = self._on_node[pod.node]
        on_node.discard(pod.uid)
        if not on_node:
            del self._on_node[pod.node]
        if pod.node in self._slots:
            self._slots[pod.node].free(pod.uid)
            if not self._slots[pod.node]:
                del self._slots[pod.node]

    def _use(self, uid: str, hold: str) -> None:
        """Note whose room a pod uses; what is left of it is to be counted again."""
        before = self._used_of.pop(uid, "")
        if before:
            self._users[before].discard(uid)
            self._changed.add(before)
        if hold:
            self._used_of[uid] = hold
            self._users[hold].add(uid)
            self._changed.add(hold)

    @override
    def absorb(self) -> None:
        if not self.view.now:
            return
        version = self._sources.version_of(self.view)
        if not self._is_counting or version is not self._version:
            self._version, self._is_counting = version, True
            self._changed.update(self._pods)
        for uid in sorted(self._changed, key=self._is_hold):
            with self._isolated.of(uid):
                self._count(uid)
        self._changed.clear()
        self._ended.clear()
        if not 0 <= self.view.now - self._sampled < SAMPLE_SECONDS:
            self._sampled = self.view.now
            with self._isolated.of(_QUOTAS):
                self._gpus.hold_all(_QUOTAS, self._sources.levels_of(self.view), self._now)

    def note_waiting(self, waiting: Mapping[UsageLabels, int], now: float) -> None:
        """Count what is waited for from now on; ``now`` is in seconds since the epoch."""
        self._gpus.hold_all(_WAITING, waiting, self._ms(now))

    def collect(self, now: float) -> Iterator[tuple[UsageLabels, int]]:
        """Yield what was held since this process leads: thousandths of GPUs times milliseconds.

        ``now`` is in seconds since the epoch. It yields nothing until the first cycle.
        """
        return self._gpus.collect(self._ms(now))

    def collect_resources(self, now: float) -> Iterator[tuple[ResourceLabels, int]]:
        """Yield the same of other resources, in their own units times milliseconds."""
        return self._resources.collect(self._ms(now))

    def sum_by_model(self) -> Mapping[tuple[str, str], int]:
        """Return the thousandths of GPUs that are held now, by model and kind."""
        return self._gpus.sum_now(lambda labels: (labels.model, labels.kind))

    @property
    def _now(self) -> int:
        return round(self.view.now * MS_PER_SECOND)

    def _ms(self, now: float) -> int:
        return round(max(now, self.view.now) * MS_PER_SECOND)

    def _is_hold(self, uid: str) -> bool:
        """Whether it is room that is held: counted after its users."""
        pod = self._pods.get(uid)
        return pod is not None and pod.handling is Handling.RESERVE

    def _count(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is None:
            self._note_loss(uid)
            self._gpus.release(uid, self._now)
            self._resources.release(uid, self._now)
            self._milli.pop(uid, None)
            return
        use = self._sources.measure(pod)
        held = use.milli_gpus
        if use.slices:
            held += self._slots[pod.node].take(uid, use.slices)
        self._milli[uid] = held
        is_hold = pod.handling is Handling.RESERVE
        if is_hold:
            held = max(0, held - sum(self._milli.get(user, 0) for user in self._users.get(uid, ())))
        model = self._models.get(pod.node, "") if held else ""
        quota = self._sources.quota_of(self.view, pod)
        kind = UsageKind.RESERVED if is_hold else UsageKind.HELD
        self._gpus.hold(uid, UsageLabels(quota, pod.namespace, model, kind), held, self._now)
        amounts = {} if is_hold else use.amounts or {}
        rows = {ResourceLabels(quota, pod.namespace, key): n for key, n in amounts.items()}
        self._resources.hold_all(uid, rows, self._now)

    def _note_loss(self, uid: str) -> None:
        """Count what a pod loses that is ended by something other than itself."""
        last = self._ended.get(uid)
        cause = None if last is None else find_cause(last)
        held = self._milli.get(uid, 0)
        if last is None or cause is None or not held:
            return
        now = self._now
        run = make_segment(uid, Holder(last.namespace, last.name), start_of(last), now, held)
        checkpointed = round(last.checkpointed * MS_PER_SECOND)
        lost = find_lost([run], now, *cause, checkpointed=checkpointed).lost
        quota, model = self._sources.quota_of(self.view, last), self._models.get(last.node, "")
        self._gpus.add(UsageLabels(quota, last.namespace, model, UsageKind.LOST), lost, now)
