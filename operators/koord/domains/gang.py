"""Gangs: PodGroups, whose pods start together."""

from typing import Final

from koord.api.keys.gang import NATIVE_VERSION
from koord.api.podgroup import PodGroup
from koord.core.gang.cache import GangCache
from koord.core.model.gangs import ObservedPodGroup
from koord.domains.planning import Planning
from koord.kube.errors import Forbidden, NotFound
from koord.kube.kind import Kind, Stateless, of_gangs, of_model
from koord.kube.translate.gangs import PodGroupTranslator, translate_native
from koord.kube.wire import WireNativePodGroup

POD_GROUPS: Final = of_model(
    PodGroup,
    lambda options: PodGroupTranslator(options.gang_defaults),
    of_gangs,
    GangCache.upsert_pod_group,
    lambda gangs, group: gangs.remove_pod_group(group.key),
    is_required=True,
    is_useful_in_part=True,
    absent_on=(NotFound,),
)
NATIVE_POD_GROUPS: Final = Kind[
    WireNativePodGroup, ObservedPodGroup, Stateless[WireNativePodGroup, ObservedPodGroup]
](
    NATIVE_VERSION,
    "podgroups",
    WireNativePodGroup,
    lambda options: Stateless(lambda wire: translate_native(wire, options.gang_defaults)),
    of_gangs,
    GangCache.upsert_pod_group,
    lambda gangs, group: gangs.remove_pod_group(group.key),
    shares_plural=True,
    absent_on=(NotFound, Forbidden),
)


PLANNING: Final = Planning(kinds=(POD_GROUPS, NATIVE_POD_GROUPS))
