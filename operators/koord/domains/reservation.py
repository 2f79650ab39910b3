"""Reservations: room that is held for pods to come."""

from collections.abc import Iterable
from typing import Final

from koord.api.reservation import Reservation
from koord.core.engine.plugin import Plugin
from koord.core.reservation.lifecycle import PriorityClass
from koord.core.reservation.model import IgnoredResources
from koord.core.reservation.plugin import Reservations
from koord.domains.planning import Planning, PlanOptions
from koord.kube.errors import Forbidden, NotFound
from koord.kube.kind import Kind, Stateless, of_model, of_plugin
from koord.kube.translate.cluster_objects import translate_priority_class
from koord.kube.translate.pods import PodTranslator
from koord.kube.translate.reservations import ReservationPodReader, ReservationTranslator
from koord.kube.wire import WirePriorityClass

RESERVATIONS: Final = of_model(
    Reservation,
    lambda options: ReservationTranslator(PodTranslator(options)),
    of_plugin(Reservations),
    Reservations.upsert,
    Reservations.remove,
    absent_on=(NotFound,),
)
PRIORITY_CLASSES: Final = Kind[
    WirePriorityClass, PriorityClass, Stateless[WirePriorityClass, PriorityClass]
](
    "scheduling.k8s.io/v1",
    "priorityclasses",
    WirePriorityClass,
    lambda _: Stateless(translate_priority_class),
    of_plugin(Reservations),
    Reservations.upsert_priority_class,
    Reservations.remove_priority_class,
    is_namespaced=False,
    # Without the right, which earlier roles lack, reservations take no part in preemption.
    absent_on=(Forbidden,),
)


def _make_plugins(options: PlanOptions) -> Iterable[Plugin]:
    yield Reservations(compat=options.compat, ignored=options.of(IgnoredResources))


PLANNING: Final = Planning(
    kinds=(RESERVATIONS, PRIORITY_CLASSES),
    make_plugins=_make_plugins,
    pod_reader=ReservationPodReader(),
)
