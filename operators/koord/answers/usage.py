"""Which GPUs were held, for how long and by whom, as far as objects of the API tell. For people.

Pods that are deleted are not in it: only what kept records of them can tell. What is *held* is what
a pod was given, whether it was busy or not.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from koord.answers.encoding import encode
from koord.answers.fragmentation import model_of
from koord.answers.gpus import MilliGpus, measure_gpus
from koord.answers.usage_levels import find_cluster_levels_in_steps, find_quota_levels
from koord.core.engine.state import ClusterState
from koord.core.model.koordinator_class import find_class_by_priority
from koord.core.model.pods import Handling, Pod
from koord.core.model.text import cut, format_time
from koord.core.model.units import AMOUNT_LIMIT, CPU, MEMORY, MOST_CPUS
from koord.core.quota.model import QuotaName
from koord.core.usage.book import UsageBook, path_of, tabulate_book
from koord.core.usage.levels import UsageLevels, UsageLook
from koord.core.usage.lost import find_cause
from koord.core.usage.segments import (
    MS_PER_SECOND,
    EndBasis,
    Flag,
    Holder,
    Segment,
    Window,
    make_segment,
    start_of,
)
from koord.core.usage.slices import SliceSpan, share_slices
from koord.core.usage.tables import By, UsageRow, UsageTable, format_hours, tabulate
from koord.isolation import Isolation

UNIT: Final = "milliGpuMs"
"""What ``held`` counts: thousandths of GPUs times milliseconds."""
STEP_PODS: Final = 500
"""That are looked at in one step."""
_OTHER_RESOURCES: Final[Mapping[str, int]] = {CPU: MOST_CPUS, MEMORY: AMOUNT_LIMIT}
"""What is counted besides GPUs, and the most of it that one pod is taken to hold: any number may be
asked for."""
_MOST_NAME: Final = 253


@dataclass(slots=True)
class SegmentMemory:
    """Segments of the last look: that of a pod that has not changed since only goes on.

    Of 50,000 pods a few hundred change in a minute.
    """

    _last: dict[str, tuple[Pod, tuple[object, ...], Segment]] = field(default_factory=dict)
    _next: dict[str, tuple[Pod, tuple[object, ...], Segment]] = field(default_factory=dict)

    def begin(self) -> None:
        """Begin a look: what is not seen in it is forgotten with the next one."""
        self._last, self._next = self._next, {}

    def recall(self, pod: Pod, terms: tuple[object, ...], now: int) -> Segment | None:
        """Return the segment of an equal pod until ``now``, if nothing else of it has changed."""
        pod_before, terms_before, segment = self._last.get(pod.uid, (None, (), None))
        if pod_before is not pod or terms_before != terms or segment is None:
            return None
        if segment.basis is EndBasis.OPEN:
            segment = replace(segment, end=max(now, segment.start))
        self.keep(pod, terms, segment)
        return segment

    def keep(self, pod: Pod, terms: tuple[object, ...], segment: Segment) -> None:
        self._next[pod.uid] = pod, terms, segment


def find_segments(
    state: ClusterState, now: float, user_label: str = "", memory: SegmentMemory | None = None
) -> Iterator[Segment]:
    """Yield a segment for each pod that holds or held room, those that go on until ``now``.

    A pod begins when it is bound. Room that is held for a Reservation and that no pod uses is none.
    ``user_label`` is the label that names the user.
    """
    for segment in _find_in_steps(state, now, user_label, memory or SegmentMemory()):
        if segment is not None:
            yield segment


def _find_in_steps(
    state: ClusterState, now: float, user_label: str, memory: SegmentMemory
) -> Iterator[Segment | None]:
    """Yield segments, and None now and then: there the state may change before it goes on."""
    pods = [
        pod
        for pod in state.pods.values()
        if pod.node and pod.handling not in {Handling.RESERVE, Handling.STAND_IN}
    ]
    yield None
    sliced = list[Pod]()
    for begin in range(0, len(pods), 8 * STEP_PODS):
        part = pods[begin : begin + 8 * STEP_PODS]
        sliced += [pod for pod in part if measure_gpus(pod).slices]
        yield None
    slices, models = _share_slices(sliced, now), dict[str, str]()
    memory.begin()
    at, quotas = _ms(now), state.quotas
    isolated = Isolation("usage-segments")
    for count, seen in enumerate(pods):
        if count % STEP_PODS == 0:
            yield None
        pod = state.pods.get(seen.uid)
        if pod is None or not pod.node:
            continue
        if pod.node not in models:
            row = state.table.row_of.get(pod.node)
            models[pod.node] = "" if row is None else model_of(state.table.node_at(row))
        share = slices.get(pod.uid, 0)
        terms = models[pod.node], share, quotas.quota_of(pod) if quotas.is_in_use else ""
        segment = memory.recall(pod, terms, at)
        if segment is None:
            segment = isolated.call(
                pod.uid, _make_segment, state, pod, now, models[pod.node], share, user_label
            )
            if segment is None:
                continue
            memory.keep(pod, terms, segment)
        yield segment


def _make_segment(  # noqa: PLR0913, PLR0917 - what is known of all pods together comes with one
    state: ClusterState, pod: Pod, now: float, model: str, slices: int, user_label: str
) -> Segment:
    held = measure_gpus(pod)
    start, end, basis = _times_of(pod, now)
    segment = make_segment(
        pod.uid,
        make_holder(state, pod, model if held.amount else "", user_label),
        start,
        end,
        held.with_slices(slices),
        basis=basis,
        amounts=other_amounts_of(pod),
        flags=_flags_of(held),
    )
    cause, by = find_cause(pod) or ("", "")
    if not cause:
        return segment
    return replace(segment, cause=str(cause), by=by, checkpointed=_ms(pod.checkpointed))


def look_at(
    state: ClusterState, now: float, user_label: str = "", memory: SegmentMemory | None = None
) -> UsageLook:
    """Return all of usage that can be seen now; ``now`` is in seconds since the epoch.

    Whoever looks again and again gives the same ``memory``, for one state and one label.
    """
    steps = look_in_steps(state, now, user_label, memory or SegmentMemory())
    return next(look for look in steps if look is not None)


def look_in_steps(
    state: ClusterState, now: float, user_label: str, memory: SegmentMemory
) -> Iterator[UsageLook | None]:
    """Yield None, again and again, and at last what ``look_at`` returns.

    Between two steps the state may change: what each pod holds is told as of one of them.
    """
    cluster = yield from find_cluster_levels_in_steps(state)
    at, quotas = _ms(now), state.quotas
    levels = find_quota_levels(quotas.solutions.values(), at) if quotas.is_in_use else {}
    segments = list[Segment]()
    for segment in _find_in_steps(state, now, user_label, memory):
        if segment is None:
            yield None
        else:
            segments.append(segment)
    yield UsageLook(tuple(segments), UsageLevels(at, levels, cluster), find_parents(state))


def _share_slices(pods: Iterable[Pod], now: float) -> Mapping[str, int]:
    """Return what each pod has that holds slices of GPUs: seven of a GPU make a whole one."""
    by_node: dict[str, list[SliceSpan]] = {}
    for pod in pods:
        if count := measure_gpus(pod).slices:
            start, end, _ = _times_of(pod, now)
            by_node.setdefault(pod.node, []).append(SliceSpan(pod.uid, start, end, count))
    shares: dict[str, int] = {}
    for spans in by_node.values():
        shares |= share_slices(spans)
    return shares


def other_amounts_of(pod: Pod) -> Mapping[str, int]:
    """Return what a pod requests besides GPUs, as far as it is counted."""
    return {
        key: min(amount, _OTHER_RESOURCES[key])
        for key, amount in pod.shape.requests
        if key in _OTHER_RESOURCES
    }


def make_holder(state: ClusterState, pod: Pod, model: str, user_label: str = "") -> Holder:
    """Return who holds what a pod holds."""
    quotas, gang = state.quotas, pod.gang
    owner = next((owner for owner in pod.owners if owner.is_controller), None)
    # Names of owners and gangs may be texts of any length, which pods claim.
    job = f"{pod.namespace}/{cut(owner.name, _MOST_NAME)}" if owner is not None else ""
    band = find_class_by_priority(pod.priority)
    return Holder(
        namespace=pod.namespace,
        pod=pod.name,
        quota=(quotas.quota_of(pod) or "") if quotas.is_in_use else "",
        user=pod.profile.labels.get(user_label, ""),
        owner=cut(gang.key, 2 * _MOST_NAME) if gang is not None else job,
        node=pod.node,
        model=model,
        band="" if band is None else str(band),
    )


def _times_of(pod: Pod, now: float) -> tuple[int, int, EndBasis]:
    """Return when the segment of a pod begins and ends, in milliseconds, and how that is known.

    What has ended has not ended in the future, whatever its status says.
    """
    start, at = start_of(pod), _ms(now)
    if not pod.phase.is_terminal:
        # Its own clock and that of the API server may differ.
        return start, max(at, start), EndBasis.OPEN
    if pod.finished:
        return start, min(_ms(pod.finished), max(at, start)), EndBasis.STATUS
    if pod.gone_by:
        return start, max(min(_ms(pod.gone_by), at), start), EndBasis.GRACE
    return start, start, EndBasis.LAST_SEEN


def _ms(seconds: float) -> int:
    return round(seconds * MS_PER_SECOND)


def _flags_of(held: MilliGpus) -> tuple[Flag, ...]:
    return (Flag.ESTIMATED,) if held.is_estimate else ()


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """What the pods of a quota held (``own``), and ``held`` with those of the quotas below it."""

    own: UsageRow
    held: int
    depth: int
    """How many quotas are above it."""


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """A table, and for a table of quotas its rows by the tree of quotas.

    ``unseen``: milliseconds in which nobody watched; None if nobody wrote it down. If it
    ``is_of_objects``, deleted pods are missing.
    """

    table: UsageTable
    quotas: tuple[QuotaUsage, ...] = ()
    unseen: int | None = None
    is_of_objects: bool = False


def view_usage(
    state: ClusterState, segments: Iterable[Segment], by: By, window: Window
) -> GpuUsage:
    """Return what was held in a window."""
    table = tabulate(segments, by, window)
    quotas = sum_by_quota(find_parents(state), table.rows) if by is By.QUOTA else ()
    return GpuUsage(table, quotas, is_of_objects=True)


def find_parents(state: ClusterState) -> dict[QuotaName, QuotaName]:
    """Return which quota is above which; empty for the topmost."""
    specs = state.quotas.catalog.registry.specs
    return {spec.name: spec.parent for spec in specs.values()}


def view_book(book: UsageBook, by: By, namespace: str = "") -> GpuUsage:
    """Return what was held, as a book has it; of one namespace if it is given."""
    if namespace:
        book = book.only_in(namespace)
    table = tabulate_book(book, by)
    quotas = sum_by_quota(book.above, table.rows) if by is By.QUOTA else ()
    return GpuUsage(table, quotas, book.unseen)


def sum_by_quota(
    above: Mapping[QuotaName, QuotaName], rows: Iterable[UsageRow]
) -> tuple[QuotaUsage, ...]:
    """Return the rows of quotas in the order of their tree, each with what is below it.

    Quotas that no longer exist, and pods without one, come last.
    """
    own = {row.name: row for row in rows}
    held: Counter[str] = Counter()
    for name, row in own.items():
        for quota in path_of(name, above):
            held[quota] += row.held
    paths = {name: path_of(name, above) for name in held}
    return tuple(
        QuotaUsage(own.get(name, UsageRow(name, 0, None)), held[name], len(paths[name]) - 1)
        for name in sorted(held, key=lambda name: (name not in above, paths[name]))
    )


@encode.register
def _(usage: GpuUsage) -> dict[str, Any]:
    table = usage.table
    rows = [{str(table.by): row.name, **_encode_row(row)} for row in table.rows]
    if usage.quotas:
        rows = [
            {
                "quota": quota.own.name,
                **_encode_row(quota.own),
                "heldWithChildren": quota.held,
                "hoursWithChildren": format_hours(quota.held),
            }
            for quota in usage.quotas
        ]
    return {
        "by": str(table.by),
        "unit": UNIT,
        "from": _format_ms(table.window.start),
        "to": _format_ms(table.window.end),
        "rows": rows,
        "total": _encode_row(table.total),
        "uncertainMs": table.uncertain,
        "unseenMs": usage.unseen,
        "estimated": table.estimated,
        "skewedPods": table.skewed,
    }


def _encode_row(row: UsageRow) -> dict[str, Any]:
    return {
        "held": row.held,
        "hours": format_hours(row.held),
        "pods": row.pods,
        "resourceMs": dict(row.amounts),
    }


def _format_ms(ms: int) -> str:
    return format_time(ms / MS_PER_SECOND)
