"""Over-commitment: what nodes offer to batch and mid pods."""

from typing import Final

from koord.api.colocationpolicy import ColocationPolicy
from koord.core.colocation.plugin import ColocationPolicies
from koord.domains.planning import Planning
from koord.kube.errors import Forbidden, NotFound
from koord.kube.kind import of_model, of_plugin
from koord.kube.translate.colocation import translate_policy
from koord.kube.translate.policies import PolicyTranslator

COLOCATION_POLICIES: Final = of_model(
    ColocationPolicy,
    lambda _: PolicyTranslator(translate_policy),
    of_plugin(ColocationPolicies),
    ColocationPolicies.upsert,
    ColocationPolicies.remove,
    absent_on=(NotFound, Forbidden),
)

PLANNING: Final = Planning(make_plugins=lambda _: (ColocationPolicies(),))
