"""Keeps the policy ``koord-enforce`` informed, and knows in which namespaces it is not in force.

There quotas bind only pods that opt in: such namespaces are called open, on the quota and in
``koord status``.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn

from koord.core.engine.state import ClusterState
from koord.core.model.text import named, plural
from koord.core.quota.coverage import covers, find_covered
from koord.core.quota.model import QuotaSpec
from koord.kube.errors import KubeError
from koord.kube.quota_objects import EnforcementMap
from koord.kube.status import ConditionPatch

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often changed quotas are looked for …"""
AGAIN_SECONDS: Final = 15.0
"""… and how often it is written again, or looked whether the policy is installed by now."""
ENFORCED: Final = "Enforced"
_OPEN: Final = "NamespacesOpen"


@dataclass(slots=True)
class Enforcement:
    """``on_change`` is called when other namespaces are open than before."""

    state: ClusterState
    writer: EnforcementMap
    on_change: Callable[[], None] = lambda: None
    may_work: Callable[[], bool] = lambda: True
    enforced: frozenset[str] | None = None
    """Namespaces in which pods must opt in; None: that is not known yet."""
    _covered: dict[str, frozenset[str]] = field(default_factory=dict)

    def find_open(self) -> tuple[str, ...]:
        """Return the covered namespaces in which nothing makes pods opt in."""
        if self.enforced is None:
            return ()
        return tuple(sorted(self._covered.keys() - self.enforced))

    def describe(self, quota: QuotaSpec) -> ConditionPatch | None:
        """Return the condition of a quota; None if it covers no namespace, or nothing is known."""
        namespaces = sorted(set(covers(quota)) & self._covered.keys())
        if self.enforced is None or not namespaces:
            return None
        left = [namespace for namespace in namespaces if namespace not in self.enforced]
        if not left:
            text = f"pods of {named(namespaces)} opt in, or are refused"
            return ConditionPatch(ENFORCED, True, ENFORCED, text, quota.generation)
        text = (
            f"pods of {named(left)} that do not opt in are not limited: "
            "kubectl apply -k manifests/overlays/enforce makes them opt in"
        )
        return ConditionPatch(ENFORCED, False, _OPEN, text, quota.generation)

    async def run(self) -> NoReturn:
        again = 0.0
        while True:
            covered = find_covered(self.state.quotas.catalog)
            again -= LOOK_SECONDS
            if self.may_work() and (covered != self._covered or again <= 0):
                await self.update(covered)
                again = AGAIN_SECONDS
            await asyncio.sleep(LOOK_SECONDS)

    async def update(self, covered: dict[str, frozenset[str]]) -> None:
        before = self.enforced, self._covered
        try:
            self.enforced = await self.writer.write(covered) or frozenset()
        except KubeError as error:
            log.warning(
                "Cannot tell the policy koord-enforce which namespaces quotas cover",
                extra={"problem": str(error)},
            )
            return
        self._covered = covered
        if before != (self.enforced, covered):
            left = self.find_open()
            log.info(
                "Quotas cover namespaces",
                extra={
                    "enforced": len(self.enforced),
                    "open": f"{plural(len(left), 'namespace')} {named(left)}".strip(),
                },
            )
            self.on_change()
