"""Balancing: policies that move pods off hot nodes."""

from typing import Final

from koord.api.rebalancepolicy import RebalancePolicy
from koord.core.balance.plugin import BalancePolicies
from koord.domains.planning import Planning
from koord.kube.errors import NotFound
from koord.kube.kind import of_model, of_plugin
from koord.kube.translate.balance import translate_settings
from koord.kube.translate.policies import PolicyTranslator

REBALANCE_POLICIES: Final = of_model(
    RebalancePolicy,
    lambda _: PolicyTranslator(translate_settings),
    of_plugin(BalancePolicies),
    BalancePolicies.upsert,
    BalancePolicies.remove,
    absent_on=(NotFound,),
)

PLANNING: Final = Planning(make_plugins=lambda _: (BalancePolicies(),))
