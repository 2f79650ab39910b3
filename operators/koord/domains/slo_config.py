"""Koordinator's ConfigMap ``slo-controller-config``: which of its keys are read, and by whom.

Read only by processes in which something needs it: the rights for that are in overlays. Without
them no settings are known, and nothing else waits for that.
"""

from typing import Final

from koord.api.slo_config import NAME, NAMESPACE
from koord.core.slo_config.plugin import SloConfig, SloConfigs
from koord.domains.planning import Planning
from koord.kube.errors import Forbidden, NotFound
from koord.kube.kind import Kind, of_plugin
from koord.kube.translate.colocation import COLOCATION_CONFIG
from koord.kube.translate.node_strategies import (
    NODE_SLO_CONFIGS,
    NORMALIZATION_CONFIG,
    OFFER_CONFIG,
)
from koord.kube.translate.slo_config import AnyKey, SloConfigTranslator
from koord.kube.wire import WireConfigMap

KEYS: Final[tuple[AnyKey, ...]] = (
    COLOCATION_CONFIG,
    NORMALIZATION_CONFIG,
    OFFER_CONFIG,
    *NODE_SLO_CONFIGS,
)
"""The keys that are read; those of others are left alone."""

SLO_CONFIGS: Final = Kind[WireConfigMap, SloConfig, SloConfigTranslator](
    "v1",
    "configmaps",
    WireConfigMap,
    lambda _: SloConfigTranslator(KEYS),
    of_plugin(SloConfigs),
    SloConfigs.upsert,
    SloConfigs.remove,
    only=f"{NAMESPACE}/{NAME}",
    absent_on=(NotFound, Forbidden),
)

PLANNING: Final = Planning(make_plugins=lambda _: (SloConfigs(),))
