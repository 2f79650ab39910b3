"""Defragmentation: policies that put free GPUs together."""

from typing import Final

from koord.api.defragmentationpolicy import DefragmentationPolicy
from koord.core.defrag.policy import DefragPolicies
from koord.domains.planning import Planning
from koord.kube.errors import NotFound
from koord.kube.kind import of_model, of_plugin
from koord.kube.translate.defrag import translate_settings
from koord.kube.translate.policies import PolicyTranslator

DEFRAG_POLICIES: Final = of_model(
    DefragmentationPolicy,
    lambda _: PolicyTranslator(translate_settings),
    of_plugin(DefragPolicies),
    DefragPolicies.upsert,
    DefragPolicies.remove,
    absent_on=(NotFound,),
)

PLANNING: Final = Planning(make_plugins=lambda _: (DefragPolicies(),))
