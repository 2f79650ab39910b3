"""Keeps the status of every ElasticQuota in line with its pods: for the operator ``elasticquota``.

All of it is derived from objects by the same core that the planner uses, so it may run alone. It is
looked at anew when something has changed, and at most once in a while: shares of all quotas change
with the demand of one.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from koord.controllers.bulkhead import OneByOne
from koord.core.quota.book import QuotaKey
from koord.core.quota.conditions import find_conditions
from koord.core.quota.model import QuotaName, QuotaSpec
from koord.core.quota.overuse import find_overuse
from koord.core.quota.status import Summary, summarise
from koord.core.quotatexts import write_finding
from koord.core.state import ClusterState
from koord.core.units import Amounts, format_amount
from koord.kube.statement import Condition
from koord.kube.translate.keptquota import encode_kept

PAUSE_SECONDS: Final = 1.0
"""Between one look and the next, however much changes."""

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
        self, quota: QuotaSpec, fields: Mapping[str, Any], conditions: tuple[Condition, ...]
    ) -> None:
        """Set these fields and conditions of the status, and no others."""


@dataclass(slots=True)
class QuotaStatusController:
    """Says of every quota what it uses and may use; ``is_synced`` tells whether that is known."""

    state: ClusterState
    sink: QuotaSink
    is_synced: Callable[[], bool]
    summaries: tuple[Summary, ...] = ()
    """The numbers of all quotas in force, as of the last look."""
    _said: dict[QuotaKey, tuple[object, ...]] = field(default_factory=dict)
    _failures: OneByOne = field(default_factory=OneByOne)
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
            await asyncio.sleep(PAUSE_SECONDS)
            self._woken.clear()

    def look(self) -> None:
        """Say what is new about every quota."""
        ledger = self.state.open_ledger()
        over: dict[QuotaName, dict[str, int]] = {}
        for one in find_overuse(ledger):
            over.setdefault(one.quota, {})[one.resource] = one.over
        self.summaries = tuple(self._failures.keep(ledger.names(), lambda n: summarise(ledger, n)))
        summaries = {summary.name: summary for summary in self.summaries}
        written = self.state.quotas.book.written
        self._failures.keep(written, lambda key: self._say(key, summaries, over))
        for key in self._said.keys() - written.keys():
            del self._said[key]

    def _say(
        self,
        key: QuotaKey,
        summaries: Mapping[QuotaName, Summary],
        over: Mapping[QuotaName, Amounts],
    ) -> None:
        quota = self.state.quotas.book.written[key]
        if self.state.quotas.failure_of(quota.name) is not None:
            return  # what was known last stands
        statement = self._make(key, quota, summaries, over.get(quota.name, {}))
        said = (quota.uid, quota.generation, *statement)
        if self._said.get(key) != said:
            self._said[key] = said
            self.sink.write_status(quota, *statement)

    def _make(
        self,
        key: QuotaKey,
        quota: QuotaSpec,
        summaries: Mapping[QuotaName, Summary],
        over: Amounts,
    ) -> tuple[Mapping[str, Any], tuple[Condition, ...]]:
        book = self.state.quotas.book
        in_force = book.in_force(key)
        summary = summaries[quota.name] if in_force else None
        lends = in_force is not None and in_force.lends
        findings = find_conditions(summary, over, book.problems.get(key), lends=lends)
        conditions = tuple(
            Condition(one.kind, one.holds, one.reason, write_finding(one), quota.generation)
            for one in findings
        )
        fields = _make_fields(summary)
        if in_force is not None and key in book.problems:
            fields["lastValidSpec"] = encode_kept(in_force)
        return fields, conditions


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
