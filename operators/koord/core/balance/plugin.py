"""Keeps the RebalancePolicies of a cluster. They have no part in planning."""

from typing import ClassVar

from koord.core.balance.policy import RebalanceSettings
from koord.core.engine.policies import Policies


class BalancePolicies(Policies[RebalanceSettings]):
    """All RebalancePolicies, by name."""

    name: ClassVar = "balance"
