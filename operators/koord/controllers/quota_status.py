"""Keeps the status of every ElasticQuota in line with its pods: for the operator ``elasticquota``.

All of it is derived from objects by the same core that the planner uses, so it may run alone. It is
looked at anew when something has changed, and at most once in a while: shares of all quotas change
with the demand of one.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from koord.controllers.error_isolation import OneByOne
from koord.core.quota.catalog import QuotaKey
from koord.core.quota.conditions import find_conditions
from koord.core.quota.model import QuotaName, QuotaSpec
from koord.core.quota.overuse import Overuse, find_overuse
from koord.core.quota.status import Summary, are_same, recorded, summarise
from koord.core.quota_texts import write_failed_hooks, write_finding, write_revoke
from koord.core.state import ClusterState
from koord.core.units import Amounts, format_amount
from koord.kube.status import ConditionPatch
from koord.kube.translate.last_valid_quota import encode_kept

HOOK_FAILED: Final = "HookFailed"
QUIET_SECONDS: Final = 0.7
"""Quotas are looked at when nothing has changed for this long …"""
LONGEST_SECONDS: Final = 5.0
"""… or this long after the first change: each look may cost two writes of a quota …"""
LONGEST_WHILE_BUSY_SECONDS: Final = 10.0
"""… or this long, while what is said would wait for more urgent writes anyway."""

_FIELDS: Final[Mapping[str, str]] = {
    "used": "used",
    "runtime": "share",
    "request": "request",
    "guaranteed": "guaranteed",
    "allocated": "allocated",
}
"""Field of the status -> field of the summary."""


class QuotaSink(Protocol):
    """Where a status goes; writes only what differs from what is there."""

    def write_status(
        self, quota: QuotaSpec, fields: Mapping[str, Any], conditions: tuple[ConditionPatch, ...]
    ) -> None:
        """Set these fields and conditions of the status, and no others."""

    def write_annotations(self, quota: QuotaSpec, amounts: Mapping[str, Amounts]) -> None:
        """Set the annotations of these names, without their prefix, and no others."""


@dataclass(slots=True)
class QuotaStatusController:
    """Says of every quota what it uses and may use.

    ``is_synced`` tells whether that is known, ``is_busy`` whether the API server has more urgent
    work. It is said twice: in the status, and for readers of Koordinator's annotations in those.
    Where the status is a subresource no write can change both.
    """

    state: ClusterState
    sink: QuotaSink
    is_synced: Callable[[], bool]
    is_busy: Callable[[], bool] = lambda: False
    revoke_delay: float | None = None
    """Seconds after which over-use is taken back; None if it is not. It is only told here."""
    summaries: tuple[Summary, ...] = ()
    """The numbers of all quotas in force, as of the last look."""
    _said: dict[QuotaKey, tuple[object, ...]] = field(default_factory=dict)
    _summarised: OneByOne = field(default_factory=OneByOne)
    _told: OneByOne = field(default_factory=OneByOne)
    _recorded: dict[QuotaKey, tuple[str, Mapping[str, Amounts]]] = field(default_factory=dict)
    _kept: dict[QuotaKey, tuple[QuotaSpec, Mapping[str, Any]]] = field(default_factory=dict)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Say that the state has changed."""
        self._woken.set()

    async def run(self) -> None:
        """Observe until cancelled."""
        while True:
            if self.is_synced():
                self.look()
            await self._woken.wait()
            began = time.monotonic()
            while self._is_early(time.monotonic() - began):
                self._woken.clear()
                await asyncio.sleep(QUIET_SECONDS)

    def _is_early(self, waited: float) -> bool:
        """Whether to look later; ``waited`` is in seconds since the first change."""
        if self.is_busy():
            return waited < LONGEST_WHILE_BUSY_SECONDS
        return self._woken.is_set() and waited < LONGEST_SECONDS

    def look(self) -> None:
        """Say what is new about every quota."""
        if not (self.state.quotas.is_in_use or self._said):
            self.summaries = ()
            return
        ledger = self.state.open_ledger()
        over: dict[QuotaName, list[Overuse]] = {}
        for one in find_overuse(ledger):
            over.setdefault(one.quota, []).append(one)
        found = self._summarised.keep(ledger.names(), lambda name: summarise(ledger, name))
        self.summaries = tuple(found)
        summaries = {summary.name: summary for summary in self.summaries}
        written = self.state.quotas.book.written
        self._told.keep(written, lambda key: self._say(key, summaries, over))
        for key in self._said.keys() - written.keys():
            del self._said[key]
            self._recorded.pop(key, None)
            self._kept.pop(key, None)

    def _record(
        self, key: QuotaKey, quota: QuotaSpec, summaries: Mapping[QuotaName, Summary]
    ) -> None:
        in_force = self.state.quotas.book.in_force(key)
        amounts = recorded(summaries[quota.name]) if in_force else {}
        before = self._recorded.get(key)
        if before is None or before[0] != quota.uid or not are_same(before[1], amounts):
            self._recorded[key] = (quota.uid, amounts)
            self.sink.write_annotations(quota, amounts)

    def _say(
        self,
        key: QuotaKey,
        summaries: Mapping[QuotaName, Summary],
        over: Mapping[QuotaName, Sequence[Overuse]],
    ) -> None:
        quota = self.state.quotas.book.written[key]
        if self.state.quotas.failure_of(quota.name) is not None:
            return  # what was known last stands
        statement = self._make(key, quota, summaries, over.get(quota.name, ()))
        said = (quota.uid, quota.generation, *statement)
        if self._said.get(key) != said:
            self._said[key] = said
            self.sink.write_status(quota, *statement)
        self._record(key, quota, summaries)

    def _make(
        self,
        key: QuotaKey,
        quota: QuotaSpec,
        summaries: Mapping[QuotaName, Summary],
        over: Sequence[Overuse],
    ) -> tuple[Mapping[str, Any], tuple[ConditionPatch, ...]]:
        book = self.state.quotas.book
        in_force = book.in_force(key)
        summary = summaries[quota.name] if in_force else None
        lends = in_force is not None and in_force.lends
        revoke = write_revoke(self.revoke_delay)
        findings = find_conditions(summary, over, book.problems.get(key), lends=lends)
        conditions = (
            *(
                ConditionPatch(
                    one.kind, one.holds, one.reason, write_finding(one, revoke), quota.generation
                )
                for one in findings
            ),
            *self._ask_hooks(quota, summary),
        )
        fields = _make_fields(summary)
        if (valid := book.valid_last(key)) is not None:
            fields["lastValidSpec"] = self._keep(key, valid)
        return fields, conditions

    def _keep(self, key: QuotaKey, valid: QuotaSpec) -> Mapping[str, Any]:
        """Return what is valid as the status keeps it, always: the next edit may be invalid."""
        before = self._kept.get(key)
        if before is None or before[0] is not valid:
            before = self._kept[key] = (valid, encode_kept(valid))
        return before[1]

    def _ask_hooks(self, quota: QuotaSpec, summary: Summary | None) -> Iterator[ConditionPatch]:
        hooks = self.state.quotas.hooks
        for one in hooks.augment(summary) if summary and hooks.hooks else ():
            yield ConditionPatch(one.type, one.status, one.reason, one.message, quota.generation)
        if hooks:
            failed = bool(hooks.failures)
            reason = HOOK_FAILED if failed else "HooksWork"
            text = write_failed_hooks(hooks)
            yield ConditionPatch(HOOK_FAILED, failed, reason, text, quota.generation)


def _make_fields(summary: Summary | None) -> dict[str, Any]:
    if summary is None:
        return {}
    return {
        name: {
            key: format_amount(key, amount)
            for key, amount in sorted(getattr(summary, attribute).items())
        }
        for name, attribute in _FIELDS.items()
        if getattr(summary, attribute)
    }
