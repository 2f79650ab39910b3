"""Gangs: PodGroups, whose pods start together."""

from typing import Final

from koord.api.keys.gang import NATIVE_GROUP
from koord.api.podgroup import PodGroup
from koord.core.gang.cache import GangCache
from koord.core.model.gangs import ObservedPodGroup
from koord.domains.planning import Planning
from koord.kube.errors import Forbidden, NotFound
from koord.kube.kind import Kind, Stateless, of_gangs, of_model
from koord.kube.reflector import Absence
from koord.kube.translate.gangs import PodGroupTranslator
from koord.kube.translate.native_groups import translate_native
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
NATIVE_VERSIONS: Final = tuple(
    f"{NATIVE_GROUP}/{version}" for version in ("v1beta1", "v1alpha3", "v1alpha2")
)
"""Of these the first is read that the API server serves. In ``v1alpha1`` pods named a Workload."""
NATIVE_KEPT_SECONDS: Final = 60.0
"""While an API server is replaced by one of another version, none may be served for a moment."""
NATIVE_POD_GROUPS: Final = Kind[
    WireNativePodGroup, ObservedPodGroup, Stateless[WireNativePodGroup, ObservedPodGroup]
](
    NATIVE_VERSIONS[0],
    "podgroups",
    WireNativePodGroup,
    lambda options: Stateless(lambda wire: translate_native(wire, options.gang_defaults)),
    of_gangs,
    GangCache.upsert_pod_group,
    lambda gangs, group: gangs.remove_pod_group(group.key),
    shares_plural=True,
    other_versions=NATIVE_VERSIONS[1:],
    absent_on=(NotFound, Forbidden),
    kept_seconds=NATIVE_KEPT_SECONDS,
    may_lack_at_start=True,
    note_absence=lambda state, absence: state.gangs.note_unread(
        NATIVE_VERSIONS if absence is Absence.PROVEN else ()
    ),
)


PLANNING: Final = Planning(kinds=(POD_GROUPS, NATIVE_POD_GROUPS))
