"""The status of ColocationPolicies: for the operator ``colocationpolicy``.

It says how many nodes a policy decides about and what they offer together, and shows a few of them
with all terms. Others are explained by the command line, with the same function.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from koord.api.colocationpolicy import (
    ColocationPolicyStatus,
    OfferedResource,
    OfferingNode,
    OfferTerm,
)
from koord.api.resource import to_time
from koord.controllers.coalescing import Pause
from koord.controllers.over_commit import Offered, OverCommitPublisher
from koord.controllers.status_author import StatusAuthor
from koord.controllers.status_controller import ChangedInputs
from koord.core.colocation.decide import OfferState, decide_offer
from koord.core.colocation.plugin import ColocationPolicies
from koord.core.colocation.strategy import ObservedColocation
from koord.core.engine.state import ClusterState
from koord.kube.status import ConditionPatch
from koord.kube.translate.amounts import write_quantities

READY: Final = "Ready"
MOST_SHOWN: Final = 10
"""Nodes that a status shows with all terms."""
ROUND_SECONDS: Final = 60.0
_PAUSE: Final = Pause(1.0, 3.0)


@dataclass(slots=True)
class ColocationPolicyStatuses:
    """Writes statuses once a minute; ``publisher`` is None where nothing is published."""

    state: ClusterState
    author: StatusAuthor[str, ObservedColocation]
    publisher: OverCommitPublisher | None
    clock: Callable[[], float]
    _inputs: ChangedInputs[str] = field(default_factory=ChangedInputs)

    def changed(self) -> list[str]:
        policies = self.state.plugin(ColocationPolicies).policies
        rival = "" if self.publisher is None else self.publisher.find_rival()
        return self._inputs.compare(policies, lambda name: (policies[name], rival))

    def pause_for(self, _name: str) -> Pause:
        return _PAUSE

    async def update(self, name: str) -> float | None:
        policy = self.state.plugin(ColocationPolicies).policies.get(name)
        if policy is None:
            return None
        offered = self._find_offered(name)
        is_ready, reason, text = self._judge(policy, offered)
        ready = ConditionPatch(READY, is_ready, reason, text, policy.generation)
        kept = {"lastValidSpec": dict(policy.kept)} if policy.kept else {}
        fields = self._make_status(offered).encode_set()
        self.author.write_status(policy, {**fields, **kept}, (ready,))
        return ROUND_SECONDS

    def _find_offered(self, policy: str) -> dict[str, Offered]:
        nodes = {} if self.publisher is None else self.publisher.offered
        return {name: of for name, of in sorted(nodes.items()) if of.policy == policy}

    def _judge(
        self, policy: ObservedColocation, offered: Mapping[str, Offered]
    ) -> tuple[bool, str, str]:
        if policy.settings is None:
            return False, "Invalid", "there are no valid settings; nothing is published"
        if self.publisher is None:
            text = "nothing is published: colocation.enabled is false in the configuration"
            return False, "Disabled", text
        rival = self.publisher.find_rival()
        if rival:
            text = f"Koordinator's manager runs as {rival} and publishes itself; nothing is written"
            return False, "ManagedElsewhere", text
        degraded = sum(of.state is OfferState.DEGRADED for of in offered.values())
        text = f"{len(offered) - degraded} of {len(offered)} nodes offer what others leave"
        if degraded:
            text += f"; of {degraded} nobody has reported lately what they use"
        return True, "Publishing", text

    def _make_status(self, offered: Mapping[str, Offered]) -> ColocationPolicyStatus:
        totals: dict[str, int] = {}
        for of in offered.values():
            for resource, amount in of.amounts.items():
                totals[resource] = totals.get(resource, 0) + (amount or 0)
        return ColocationPolicyStatus(
            nodes=len(offered),
            degraded=sum(of.state is OfferState.DEGRADED for of in offered.values()),
            # The API server makes null of a map that is emptied, and refuses that.
            offered=write_quantities(totals) or None,
            examples=list(self._show([*offered][:MOST_SHOWN])) or None,
            last_update_time=to_time(self.clock()),
        )

    def _show(self, nodes: list[str]) -> Iterator[OfferingNode]:
        for name in nodes:
            offer = decide_offer(self.state, name, self.clock())
            if offer is None:
                continue
            why = None if offer.degradation is None else offer.degradation.describe("Batch")
            yield OfferingNode(
                node=name,
                state=offer.state,
                message=why,
                resources=[
                    OfferedResource(
                        resource=each.resource,
                        amount=str(each.value),
                        terms=[
                            OfferTerm(kind=term.kind, amount=str(term.amount))
                            for term in each.terms
                        ],
                    )
                    for each in offer.breakdowns
                ],
            )
