"""Compares the recorded usage of quotas with their pods every minute, and corrects differences.

There should be none. If there are, limits would be enforced on wrong numbers: the differences are
logged and counted in a metric, and everything is recounted.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from koord.answers.quota_audit import AUDITED, find_drift, repair
from koord.core.engine.state import ClusterState
from koord.isolation import Isolation

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
