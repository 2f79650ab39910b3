"""Capabilities: who has one is called, and a method without its capability is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.builders import make_pod
from tests.cluster import make_cluster, make_unit

from koord.core.engine.plugin import CAPABILITIES, Plugin, Reactive, Session

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from koord.core.engine.cycle import Cycle
    from koord.core.model.pods import Pod, PodShape

FOR_EVERYBODY = 15


class Partners(Plugin):
    """Pods with the label ``partner`` may go only where such a pod is, but for the first."""

    name = "partners"
    session: type[Session]

    def open(self, cycle: Cycle) -> Session:
        return self.session()


class PartnersSession(Reactive):
    """Asks for another try after the others; ``expected`` is what it was told of."""

    name = "partners"
    expected: tuple[str, ...] = ()

    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        return pod.profile.labels.get("partner")

    def expect(self, pods: Iterable[Pod]) -> None:
        PartnersSession.expected = tuple(pod.name for pod in pods)

    def may_fit_later(self, shape: PodShape) -> bool:
        return self.concerns(shape)


class MisplacedSession(Session):
    name = "partners"

    def may_fit_later(self, shape: PodShape) -> bool:
        return True


def plan_with(session: type[Session]) -> Cycle:
    plugin = Partners()
    plugin.session = session
    cluster = make_cluster(1, more_plugins=[plugin])
    cluster.plan(make_unit("u", [make_pod("p").labels(partner="yes")]))
    return cluster.open_cycle()


def test_session_with_a_capability_is_called_for_it() -> None:
    cycle = plan_with(PartnersSession)
    assert PartnersSession.expected == ("p",)
    shapes = [
        cycle.shape_of(make_pod("p").labels(**labels).build())
        for labels in ({"partner": "yes"}, {})
    ]
    assert [cycle.depends_on_others(shape) for shape in shapes] == [True, False]


def test_method_without_its_capability_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"MisplacedSession\.may_fit_later needs Reactive"):
        plan_with(MisplacedSession)


def test_what_everybody_has_is_small_and_no_method_is_in_two_capabilities() -> None:
    methods = [
        [name for name, value in vars(kind).items() if callable(value) and name[0] != "_"]
        for kind in CAPABILITIES
    ]
    assert len(methods[0]) == FOR_EVERYBODY
    assert len({name for names in methods for name in names}) == sum(map(len, methods))
