"""The operator ``colocationpolicy``: publishes batch and mid resources, and keeps statuses."""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from koord.api.colocationpolicy import ColocationPolicy
from koord.controllers.colocation_policy import ColocationPolicyStatuses
from koord.controllers.over_commit import OverCommitPublisher
from koord.core.colocation.plugin import ColocationPolicies
from koord.core.load.plugin import Loads
from koord.domains.colocation import COLOCATION_POLICIES
from koord.domains.colocation_settings import ColocationSettings
from koord.domains.load import NODE_METRICS
from koord.domains.placement import NODES, PODS
from koord.kube.errors import KubeError
from koord.kube.koord_manager import find_manager
from koord.kube.node_writer import NodeWriter
from koord.kube.objects import ref_of_colocation_policy
from koord.kube.status import BEHIND_ALL
from koord.kube.write_check import Write
from koord.operators.names import COLOCATION
from koord.operators.operator import Operator
from koord.operators.slo_config import read_slo_config
from koord.runtime import collectors

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 20.0
"""How often to look whether Koordinator's manager runs."""


def start(parts: "Parts") -> None:
    seen = parts.reader.translator(COLOCATION_POLICIES)
    author = parts.make_author(
        OPERATOR, seen, lambda meta: str(meta["name"]), ref_of_colocation_policy
    )
    state, publisher = parts.reader.state, None
    if parts.settings.of(ColocationSettings).enabled:
        read_slo_config(parts)
        rival = _Rival(parts)
        publisher = OverCommitPublisher(
            state, NodeWriter(parts.client), time.time, lambda: rival.name
        )
        state.plugin(Loads).listeners.append(state.plugin(ColocationPolicies).note)
        parts.metrics.watch(*collectors.over_commit(publisher))
        parts.keep_status(publisher, author, pace=BEHIND_ALL)
        parts.background.append(rival.run)
    statuses = ColocationPolicyStatuses(state, author, publisher, time.time)
    parts.handle(author, parts.keep_status(statuses, author))


@dataclass(slots=True)
class _Rival:
    """Knows whether Koordinator's manager runs; until that was asked once, it is taken to."""

    parts: "Parts"
    name: str = "unknown"

    async def run(self) -> NoReturn:
        while True:
            try:
                name = await find_manager(self.parts.client, time.time())
            except KubeError as error:
                log.warning("Cannot read a Lease", extra={"problem": str(error)})
            else:
                if name != self.name:
                    self._note(name)
            await asyncio.sleep(LOOK_SECONDS)

    def _note(self, name: str) -> None:
        self.name = name
        if name:
            text = f"Koordinator's manager runs as {name}; batch and mid resources are left to it"
            self.parts.warn("ManagedElsewhere", text)
        for wake in self.parts.reader.listeners:
            wake()


OPERATOR: Final = Operator(
    COLOCATION,
    ColocationPolicy,
    start,
    reads=(PODS, NODES, NODE_METRICS, COLOCATION_POLICIES),
    writes=frozenset(
        {
            Write("operators.koordinator.sh", "colocationpolicies/status", "patch"),
            Write("events.k8s.io", "events", "create"),
        }
    ),
)
