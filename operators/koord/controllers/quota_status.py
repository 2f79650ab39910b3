"""The status of ElasticQuotas, and the audit of usage: for the operator ``elasticquota``.

All of the status is derived from objects by the same core that the planner uses, so the operator
may run alone. The shares of all quotas change with the demand of one, so all are computed together,
when nothing has changed for a moment.

``QuotaAudit`` compares the recorded usage of quotas with their pods every minute, and corrects
differences.

There should be none. If there are, limits would be enforced on wrong numbers: the differences are
logged and counted in a metric, and everything is recounted.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from koord.answers.quota_audit import AUDITED, find_drift, repair
from koord.api.elasticquota import ElasticQuotaStatus, QuotaQueue
from koord.api.keys import operators
from koord.api.resource import KeptSpec, to_time
from koord.controllers.coalescing import Pause
from koord.controllers.queue_looks import QueueSummary
from koord.controllers.status_author import StatusAuthor
from koord.core.engine.state import ClusterState
from koord.core.model.text import cut
from koord.core.model.units import Amounts, format_limit
from koord.core.queue.memory import RunMemory
from koord.core.queue.plugin import Queues
from koord.core.queue.usage import TICK_SECONDS
from koord.core.quota.cache import QuotaCache
from koord.core.quota.catalog import QuotaKey, Standing, key_of
from koord.core.quota.hooks import Hooks
from koord.core.quota.model import QuotaName, QuotaSpec
from koord.core.quota.reclaim import Overuse, find_overuse, write_reclaim
from koord.core.quota.spec_errors import InvalidQuota
from koord.core.quota.status import (
    HOOK_FAILED,
    ConditionState,
    QuotaCondition,
    Summary,
    are_same,
    find_conditions,
    name_state,
    recorded,
    summarise,
)
from koord.core.usage.budget_plugin import Budgets
from koord.core.usage.budgets import RECORD_MS
from koord.core.usage.segments import MS_PER_SECOND
from koord.isolation import Isolation
from koord.kube.status import ConditionPatch
from koord.kube.translate.amounts import write_quantities
from koord.kube.translate.budget_records import encode_budget
from koord.kube.translate.queue_records import encode_record
from koord.kube.translate.quotas import (
    QuotaTranslator,
    encode_last_valid,
    make_recorded,
    read_recorded,
)

ALL_QUOTAS: Final = "all quotas"
"""The one key of this policy."""
PAUSE: Final = Pause(0.7, 5.0)
"""Each update may cost two writes per quota."""
LONGEST_WHILE_BUSY_SECONDS: Final = 10.0
"""Statuses are updated this long after the first change even while more urgent writes go on."""


@dataclass(slots=True)
class QuotaStatusPolicy:
    """Reports what every quota uses and may use.

    ``is_busy`` tells whether the API server has more urgent work. The results are written twice: in
    the status, and for readers of Koordinator's annotations in those. Where the status is a
    subresource no write can change both.
    """

    state: ClusterState
    author: StatusAuthor[str, QuotaSpec]
    seen: QuotaTranslator
    clock: Callable[[], float] = time.monotonic
    is_busy: Callable[[], bool] = lambda: False
    enforcement: Callable[[QuotaSpec], ConditionPatch | None] = lambda _: None
    """Returns whether pods of the namespaces of a quota must opt in."""
    queue_of: Callable[[QuotaName], QueueSummary | None] = lambda _: None
    """Returns what waits in a quota, if placement runs in this process."""
    reclaim_delay: float | None = None
    """Seconds after which over-use is reclaimed, None if it is not: for the texts only."""
    summaries: tuple[Summary, ...] = ()
    """The numbers of all active quotas, as of the last update."""
    wall: Callable[[], float] = time.time
    """The time in seconds since the epoch, for what is remembered of queues."""
    _memory: RunMemory | None = None
    _budgets: Mapping[QuotaName, int] = field(default_factory=dict)
    """Quota -> its GPU hours of a month."""
    _changed_at: float = float("inf")
    """When the first change since the last update was seen."""
    _written: dict[QuotaKey, tuple[object, ...]] = field(default_factory=dict)
    _isolated: Isolation = field(default_factory=lambda: Isolation("quotas"))
    _recorded: dict[QuotaKey, tuple[str, Mapping[str, Amounts], Mapping[str, str]]] = field(
        default_factory=dict
    )
    """Quota -> uid of the object, and its results as amounts and as annotations."""
    _kept: dict[QuotaKey, tuple[QuotaSpec, KeptSpec]] = field(default_factory=dict)

    def changed(self) -> tuple[str]:
        self._changed_at = min(self._changed_at, self.clock())
        return (ALL_QUOTAS,)

    def pause_for(self, _key: str) -> Pause:
        return PAUSE

    async def update(self, _key: str) -> float | None:
        self._changed_at = min(self._changed_at, self.clock())
        waited = self.clock() - self._changed_at
        if self.is_busy() and waited < LONGEST_WHILE_BUSY_SECONDS:
            return PAUSE.quiet
        self._changed_at = float("inf")
        self.update_all()
        if self._budgets:
            return RECORD_MS / MS_PER_SECOND
        return None if self._memory is None else float(TICK_SECONDS)

    def update_all(self) -> None:
        """Write what is new about every quota."""
        if not (self.state.quotas.is_in_use or self._written):
            self.summaries = ()
            return
        ledger = self.state.open_ledger()
        self._memory = self.state.plugin(Queues).remember(self.wall())
        self._budgets = self.state.plugin(Budgets).remember(self.wall())
        over: dict[QuotaName, list[Overuse]] = {}
        for overuse in find_overuse(ledger):
            over.setdefault(overuse.quota, []).append(overuse)
        results = (self._isolated.call(name, summarise, ledger, name) for name in ledger.names())
        self.summaries = tuple(summary for summary in results if summary is not None)
        summaries = {summary.name: summary for summary in self.summaries}
        quotas = self.state.quotas.catalog.written
        for key in quotas:
            self._isolated.call(key, self._report, key, summaries, over)
        for key in self._written.keys() - quotas.keys():
            del self._written[key]
            self._recorded.pop(key, None)
            self._kept.pop(key, None)

    def _report(
        self,
        key: QuotaKey,
        summaries: Mapping[QuotaName, Summary],
        over: Mapping[QuotaName, Sequence[Overuse]],
    ) -> None:
        quotas = self.state.quotas
        standing = quotas.catalog.standing_of(key)
        quota = standing.written
        if quotas.failure_of(quota.name) is not None:
            return  # the last status stays
        use = quotas.find_use(quota.name) if standing.is_meant else None
        summary = summaries[quota.name] if standing.in_force else None
        present = self.seen.finalizers_on(quota.uid) or []
        metadata = {
            "annotations": self._make_annotations(key, quota, summary),
            "finalizers": _make_finalizers(quota, present, is_used=use is not None),
        }
        status = self._make(quotas, standing, summary, over.get(quota.name, ()), use)
        written = (quota.uid, quota.generation, *status, metadata, present)
        if self._written.get(key) != written or self.author.awaits(quota.uid):
            self._written[key] = written
            is_urgent = metadata["finalizers"] != present  # a deletion may wait for it
            self.author.write_status(quota, *status, metadata, is_urgent=is_urgent)

    def _make_annotations(
        self, key: QuotaKey, quota: QuotaSpec, summary: Summary | None
    ) -> Mapping[str, str]:
        """Return Koordinator's annotations; amounts that are equal stay as they are written."""
        amounts = {} if summary is None else recorded(summary)
        before = self._recorded.get(key)
        if before is not None and before[0] == quota.uid and are_same(before[1], amounts):
            return before[2]
        present = self.seen.recorded_on(quota.uid)
        is_there = present and are_same(amounts, read_recorded(present))
        made = present if present and is_there else make_recorded(amounts)
        self._recorded[key] = (quota.uid, amounts, made)
        return made

    def _make(
        self,
        quotas: QuotaCache,
        standing: Standing,
        summary: Summary | None,
        over: Sequence[Overuse],
        use: InvalidQuota | None,
    ) -> tuple[Mapping[str, Any], tuple[ConditionPatch, ...]]:
        quota, in_force = standing.written, standing.in_force
        lends = in_force is not None and quotas.rules.lends(in_force)
        reclaim_text = write_reclaim(self.reclaim_delay)
        states = (
            *find_conditions(summary, over, standing.problem, lends=lends),
            ConditionState(
                QuotaCondition.TERMINATING,
                quota.is_terminating,
                problem=use if quota.is_terminating else None,
            ),
        )
        conditions = (
            *(
                ConditionPatch(
                    state.kind,
                    state.holds,
                    state.reason,
                    state.text(reclaim_text, compat=self.state.gangs.compat),
                    quota.generation,
                )
                for state in states
            ),
            *_ask_hooks(quotas.hooks, quota, summary),
            *filter(None, (self.enforcement(quota),)),
        )
        kept = None if standing.valid is None else self._keep(key_of(quota), standing.valid)
        status = _make_status(summary, name_state(summary, over, standing.problem), kept)
        fields = status.encode_set()
        waiting = None if in_force is None else self.queue_of(in_force.name)
        if waiting is not None:
            fields["queue"] = _make_queue(waiting).encode_set()
        if self._memory is not None and summary is not None and not summary.is_parent:
            memory = encode_record(self._memory.record(quota.name))
            if memory is not None:
                fields["queueMemory"] = memory.encode_set()
        if summary is not None and quota.name in self._budgets:
            record = self.state.plugin(Budgets).record(quota.name)
            fields["budget"] = encode_budget(record, self._budgets[quota.name]).encode_set()
        return fields, conditions

    def _keep(self, key: QuotaKey, valid: QuotaSpec) -> KeptSpec:
        """Return the active settings for the status, always: the next edit may be invalid."""
        before = self._kept.get(key)
        if before is None or before[0] is not valid:
            before = self._kept[key] = (valid, encode_last_valid(valid))
        return before[1]


def _ask_hooks(hooks: Hooks, quota: QuotaSpec, summary: Summary | None) -> Iterator[ConditionPatch]:
    for hook_condition in hooks.augment(summary) if summary and hooks.hooks else ():
        yield ConditionPatch(
            hook_condition.type,
            hook_condition.status,
            hook_condition.reason,
            hook_condition.message,
            quota.generation,
        )
    if hooks:
        failed = bool(hooks.failures)
        reason = HOOK_FAILED if failed else "HooksWork"
        text = hooks.describe_failures()
        yield ConditionPatch(HOOK_FAILED, failed, reason, text, quota.generation)


def _make_finalizers(quota: QuotaSpec, present: list[str], *, is_used: bool) -> list[str]:
    """Return our finalizers; none can be added to a quota that is being deleted."""
    if is_used and quota.is_terminating:
        return present
    return [operators.IN_USE] if is_used else []


def _make_status(summary: Summary | None, state: str, kept: KeptSpec | None) -> ElasticQuotaStatus:
    if summary is None:
        return ElasticQuotaStatus(state=state, last_valid_spec=kept)
    # A column of kubectl is blank where the status has no zero.
    used = dict.fromkeys(summary.max, 0) | dict(summary.used)
    return ElasticQuotaStatus(
        used=write_quantities(used) or None,
        runtime=write_quantities(summary.share) or None,
        request=write_quantities(summary.request) or None,
        guaranteed=write_quantities(summary.guaranteed) or None,
        allocated=write_quantities(summary.allocated) or None,
        max={key: format_limit(key, n) for key, n in sorted(summary.max.items())} or None,
        state=state,
        last_valid_spec=kept,
    )


def _make_queue(waiting: QueueSummary) -> QuotaQueue:
    return QuotaQueue(
        policy=waiting.policy,
        pending=waiting.pending,
        running=waiting.running,
        head=cut(waiting.head) or None,
        head_since=None if waiting.head_since is None else to_time(waiting.head_since),
        reservations=waiting.reservations,
    )


log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 60.0
PATIENCE_SECONDS: Final = 30.0
"""For how long the audit waits while pods are being bound."""
_TICK: Final = 0.25


@dataclass(slots=True)
class QuotaAudit:
    """``drift`` is the last finding: field -> sum of all differences, in canonical units."""

    state: ClusterState
    is_synced: Callable[[], bool]
    is_busy: Callable[[], bool]
    drift: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(AUDITED, 0))
    repairs: int = 0
    _isolated: Isolation = field(default_factory=lambda: Isolation("quota-audit"))

    async def run(self) -> None:
        """Audit every minute, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            for _ in range(int(PATIENCE_SECONDS / _TICK)):
                if not self.is_busy():
                    break
                await asyncio.sleep(_TICK)
            if self.is_synced() and self.state.quotas.is_in_use:
                self.look()

    def look(self) -> None:
        """Compare once."""
        drifts = self._isolated.call("quotas", find_drift, self.state)
        if drifts is None:
            return
        total = Counter(dict.fromkeys(AUDITED, 0))
        for quota_drift in drifts:
            total[quota_drift.field] += abs(quota_drift.kept - quota_drift.counted)
        self.drift = total
        if drifts:
            self.repairs += 1
            log.error(
                "the recorded usage of quotas differed from their pods; it is recounted",
                extra={"differences": len(drifts), "first": repr(drifts[0])},
            )
            repair(self.state)
