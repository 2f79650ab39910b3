"""Follows the pods of a cluster, and counts what they hold while this process leads.

Only who plans counts: a process that stands by would count the same again. What was held before
counts in the process that led then, so the sum over all processes is what was held, but for the
seconds in which nobody led.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from koord.core.engine.plugin import Plugin
from koord.core.model.nodes import Node
from koord.core.model.pods import Handling, Pod
from koord.core.usage.counters import UsageCounters, UsageLabels
from koord.core.usage.segments import MS_PER_SECOND

if TYPE_CHECKING:
    from koord.core.engine.state_view import StateView

_NO_HOLDERS: Final = frozenset({Handling.RESERVE, Handling.STAND_IN})
"""Room that is held for others, until a pod uses it."""


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """Whether it is counted what pods hold."""

    is_on: bool = False


class UsageTimes(Plugin):
    """What pods hold.

    ``measure`` returns the thousandths of GPUs of a pod, ``quota_of`` its quota (empty: none),
    ``model_of`` the model of the GPUs of a node, ``version_of`` another object as soon as pods may
    count for other quotas.
    """

    name = "usage"

    def __init__(
        self,
        measure: Callable[[Pod], int],
        quota_of: Callable[["StateView", Pod], str],
        model_of: Callable[[Node], str],
        version_of: Callable[["StateView"], object],
    ) -> None:
        self._measure = measure
        self._quota_of = quota_of
        self._model_of = model_of
        self._version_of = version_of
        self._counters = UsageCounters()
        self._pods: dict[str, Pod] = {}
        self._changed: set[str] = set()
        """Pods (uid) to be counted again; in a cycle, which knows the time."""
        self._on_node: dict[str, set[str]] = {}
        self._models: dict[str, str] = {}
        self._version: object = None
        self._is_counting = False

    @override
    def upsert_node(self, row: int, node: Node) -> None:
        model = self._model_of(node)
        if self._models.get(node.name) != model:
            self._models[node.name] = model
            self._changed |= self._on_node.get(node.name, set())

    @override
    def remove_node(self, row: int, name: str) -> None:
        self._models.pop(name, None)

    @override
    def observe(self, before: Pod | None, pod: Pod) -> None:
        if not pod.node or pod.phase.is_terminal or pod.handling in _NO_HOLDERS:
            self.forget(pod.uid)
            return
        self._pods[pod.uid] = pod
        self._on_node.setdefault(pod.node, set()).add(pod.uid)
        self._changed.add(pod.uid)

    @override
    def forget(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is not None:
            on_node = self._on_node[pod.node]
            on_node.discard(uid)
            if not on_node:
                del self._on_node[pod.node]
            self._changed.add(uid)

    @override
    def absorb(self) -> None:
        if not self.view.now:
            return
        version = self._version_of(self.view)
        if not self._is_counting or version is not self._version:
            self._version, self._is_counting = version, True
            self._changed.update(self._pods)
        for uid in self._changed:
            self._count(uid)
        self._changed.clear()

    def collect(self, now: float) -> Iterator[tuple[UsageLabels, int]]:
        """Yield what was held since this process leads: thousandths of GPUs times milliseconds.

        ``now`` is in seconds since the epoch. It yields nothing until the first cycle.
        """
        return self._counters.collect(round(max(now, self.view.now) * MS_PER_SECOND))

    def _count(self, uid: str) -> None:
        now = round(self.view.now * MS_PER_SECOND)
        pod = self._pods.get(uid)
        if pod is None:
            self._counters.release(uid, now)
            return
        held = self._measure(pod)
        model = self._models.get(pod.node, "") if held else ""
        labels = UsageLabels(self._quota_of(self.view, pod), pod.namespace, model)
        self._counters.hold(uid, labels, held, now)
