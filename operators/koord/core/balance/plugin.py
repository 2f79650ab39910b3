"""Keeps the RebalancePolicies of a cluster. They have no part in planning."""

from typing import ClassVar

from koord.core.balance.policy import ObservedPolicy
from koord.core.engine.plugin import Plugin


class BalancePolicies(Plugin):
    """All policies, by name."""

    name: ClassVar = "balance"

    def __init__(self) -> None:
        self.policies: dict[str, ObservedPolicy] = {}

    def upsert(self, policy: ObservedPolicy) -> None:
        self.policies[policy.name] = policy

    def remove(self, policy: ObservedPolicy) -> None:
        self.policies.pop(policy.name, None)
