"""Gangs from owners: read only where the configuration wants it."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from typing_extensions import override

from koord.api.gang import BadSetting, parse_min_available
from koord.api.keys import gang, operators
from koord.api.owner_kinds import MAX_NAME, WorkloadKind, choose_owner_kinds
from koord.core.autoscaler.options import AutoscalerOptions
from koord.core.awaited.model import RoomRecord, read_record
from koord.core.awaited.plugin import AwaitedRooms
from koord.core.engine.plugin import Plugin
from koord.core.engine.state import ClusterState
from koord.core.model.text import cut
from koord.core.owners.model import (
    DriverHint,
    GroupHint,
    GroupSize,
    KindAccess,
    KindRule,
    OwnerObject,
    read_number,
)
from koord.core.owners.plugin import NAME, OPTED_OUT, OwnerGangs, OwnerOptions
from koord.domains.planning import Planning, PlanOptions
from koord.domains.priorities import find_priority
from koord.kube.errors import Forbidden, NotFound
from koord.kube.kind import AnyKind, Kind, PodReader, TranslatorOptions, of_plugin
from koord.kube.reflector import Absence
from koord.kube.translate.owners import OwnerTranslator, make_rules
from koord.kube.wire import WireCustomResource

_SPARK_ROLE: Final = "spark-role"
_DRIVER: Final = "driver"


@dataclass(frozen=True)
class OwnerKinds:
    """The kinds that are looked for."""

    kinds: tuple[WorkloadKind, ...] = ()

    @classmethod
    def choose(cls, own: tuple[WorkloadKind, ...] = ()) -> "OwnerKinds":
        """Return those that are known, and ``own`` ones."""
        return cls(choose_owner_kinds(own))

    @cached_property
    def rules(self) -> tuple[KindRule, ...]:
        return make_rules(self.kinds)

    @property
    def readable(self) -> Iterable[WorkloadKind]:
        """The kinds of which objects are read, where the cluster serves them."""
        return (kind for kind in self.kinds if kind.part != "ends")


def make_kind(owner: WorkloadKind) -> AnyKind:
    """Return where the objects of a kind are listed, and how they are read."""

    def make_translator(options: TranslatorOptions) -> OwnerTranslator:
        return OwnerTranslator(owner, options)

    def note_absence(state: ClusterState, absence: Absence) -> None:
        # Only kinds that are served are read: what cannot be listed must not be.
        access = KindAccess.READ if absence is Absence.NONE else KindAccess.FORBIDDEN
        state.plugin(OwnerGangs).note_access((owner.group, owner.kind), access)

    return Kind[WireCustomResource, OwnerObject, OwnerTranslator](
        owner.api_version,
        owner.plural,
        WireCustomResource,
        make_translator,
        of_plugin(OwnerGangs),
        OwnerGangs.upsert,
        OwnerGangs.remove,
        shares_plural=True,
        is_useful_in_part=True,
        is_metadata_only=owner.reads == "metadata",
        absent_on=(NotFound, Forbidden),
        note_absence=note_absence,
    )


class OwnerPodReader(PodReader):
    """Reads what pods say of their owners.

    Whether one wants no gang of them, which PodGroup of another scheduler it names instead, how
    large its group is, and what a driver says of its executors; where room is held for pods that
    come after it.
    """

    name = NAME
    record = operators.LATER_ROOM

    @override
    def read_record(self, uid: str, text: str, hints: Hashable | None) -> RoomRecord:
        return read_record(uid, text)

    @override
    def read_hints(
        self, annotations: Mapping[str, str], labels: Mapping[str, str], priority: int
    ) -> Hashable | None:
        if annotations.get(operators.OWNER_GROUPING) == "false":
            return OPTED_OUT
        if name := labels.get(gang.PLUGINS_GROUP):
            return GroupHint("scheduling.x-k8s.io/v1alpha1", name)
        if name := annotations.get(gang.VOLCANO_GROUP):
            return GroupHint("scheduling.volcano.sh/v1beta1", cut(name, MAX_NAME))
        if size := read_number(annotations.get(gang.LWS_SIZE, "")):
            return GroupSize(size)
        is_driver = gang.MIN_AVAILABLE in annotations and labels.get(_SPARK_ROLE) == _DRIVER
        return _read_driver(annotations) if is_driver else None


def _read_driver(annotations: Mapping[str, str]) -> DriverHint:
    least = parse_min_available({}, annotations)
    if isinstance(least, BadSetting):
        return DriverHint(0, least.key, least.problem, least.value)
    return DriverHint(least)


def _make_plugins(options: PlanOptions) -> Iterable[Plugin]:
    chosen = options.of(OwnerOptions)
    if not chosen.is_on:
        return
    # Nodes are asked for by pods, of which those that come later are none yet.
    is_elastic = options.of(AutoscalerOptions).is_on
    yield OwnerGangs(replace(chosen, holds_room=not is_elastic))
    yield AwaitedRooms(find_priority)


PLANNING: Final = Planning(
    make_plugins=_make_plugins,
    pod_reader=OwnerPodReader(),
    reads_pods=lambda options: options.of(OwnerOptions).is_on,
)
