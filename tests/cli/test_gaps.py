"""What is missing in an answer, as values and as one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.cli.readings import LEADING, STOPPED, make_reading
from tests.support.laws import examples

from koord.answers.envelope import AnswerGap, AnswerHead, GapCause
from koord.answers.gaps import find_gaps, head_of, list_warnings
from koord.answers.reading import Extent, ReportsOfLoad, Target, TargetKind
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import NAMESPACES, NODES, PODS
from koord.domains.quota import QUOTAS
from koord.domains.topology import TOPOLOGIES

if TYPE_CHECKING:
    from koord.kube.kind import AnyKind

TARGET = Target(TargetKind.POD, "team-a", "w-0")
IN_PART = (PODS, POD_GROUPS)
READ: dict[AnyKind, st.SearchStrategy[Extent | None]] = {
    kind: st.sampled_from([None, Extent.NAMESPACE, Extent.NOTHING])
    if kind in IN_PART
    else st.sampled_from([None, Extent.NOTHING])
    for kind in (NODES, PODS, POD_GROUPS, QUOTAS, TOPOLOGIES, NAMESPACES)
}
CAUSES = "NoRight NotServed Stale NoFeed NotStored TooExpensive TooMany Hidden NoLeader"
LESS = {None: (None,), Extent.NAMESPACE: (None, Extent.NAMESPACE), Extent.NOTHING: tuple(Extent)}


def test_causes_are_a_closed_list() -> None:
    assert sorted(GapCause) == sorted(CAUSES.split())


def test_the_form_of_an_envelope() -> None:
    gap = AnswerGap("nodes", GapCause.NO_RIGHT, "whether there is room")
    head = AnswerHead("Queue", 1764057600.1234, leader="koord-0", term=41, gaps=(gap,))
    assert head.wrap({"items": []}) == {
        "answer": "Queue",
        "version": "v1alpha1",
        "asOf": {
            "at": "2025-11-25T08:00:00.123Z",
            "state": None,
            "instance": None,
            "source": "Once",
            "lagSeconds": 0,
            "leader": "koord-0",
            "term": 41,
            "feed": None,
        },
        "gaps": [
            {
                "missing": "nodes",
                "because": "NoRight",
                "then": "whether there is room is not known",
            }
        ],
        "value": {"items": []},
    }


def test_nobody_leads_is_a_gap() -> None:
    (gap,) = head_of("Queue", make_reading(leader=STOPPED)).gaps
    assert gap.because is GapCause.NO_LEADER
    assert head_of("Queue", make_reading(leader=LEADING)).leader == LEADING.holder
    assert head_of("Queue", make_reading(leader=None)).gaps == ()


def test_a_kind_that_is_not_served_is_no_missing_right() -> None:
    reading = make_reading(gaps={POD_GROUPS: Extent.NOT_SERVED})
    (gap,) = find_gaps(reading, TARGET)
    assert gap.because is GapCause.NOT_SERVED
    assert list_warnings(reading, TARGET) == ()


def test_what_nodes_use_is_a_gap_where_it_counts_and_is_not_known() -> None:
    reports = ReportsOfLoad("nodes.metrics.k8s.io")
    reading = make_reading(gaps={reports: Extent.NOTHING})
    (gap,) = find_gaps(reading, TARGET)
    assert gap == AnswerGap("nodes.metrics.k8s.io", GapCause.NO_RIGHT, "what nodes use")
    (line,) = list_warnings(reading, TARGET)
    assert line.startswith("you may not list nodes.metrics.k8s.io (the ClusterRole koord-user")
    assert line.endswith(": what nodes use is not known")
    (gap,) = find_gaps(make_reading(gaps={reports: Extent.NOT_SERVED}), TARGET)
    assert gap.because is GapCause.NOT_SERVED


@settings(max_examples=examples(25))
@given(st.fixed_dictionaries(READ), st.data())
def test_one_line_says_all_gaps_and_more_rights_leave_fewer(
    extents: dict[AnyKind, Extent | None], data: st.DataObject
) -> None:
    def read(chosen: dict[AnyKind, Extent | None]) -> tuple[AnswerGap, ...]:
        gaps = {kind: extent for kind, extent in chosen.items() if extent is not None}
        reading = make_reading(make_pod("team-a/w-0").gpu(1).build(), gaps=gaps)
        assert len(list_warnings(reading, TARGET)) <= 1
        found = find_gaps(reading, TARGET)
        assert not found or list_warnings(reading, TARGET)
        return found

    def may_read_more(kind: AnyKind, extent: Extent | None) -> Extent | None:
        allowed = [less for less in LESS[extent] if less is not Extent.NOT_SERVED]
        allowed = [less for less in allowed if less is not Extent.NAMESPACE or kind in IN_PART]
        return data.draw(st.sampled_from(allowed))

    less = read(extents)
    more = read({kind: may_read_more(kind, extent) for kind, extent in extents.items()})
    assert {_kind_of(gap) for gap in more} <= {_kind_of(gap) for gap in less}


def _kind_of(gap: AnswerGap) -> str:
    return gap.missing.removeprefix("all ").removesuffix(" of other namespaces")


@pytest.mark.parametrize("cause", GapCause)
def test_every_cause_has_an_envelope(cause: GapCause) -> None:
    (gap,) = AnswerHead("X", 0, gaps=(AnswerGap("a", cause, "b", are_many=True),)).wrap(1)["gaps"]
    verb = "shown" if cause is GapCause.HIDDEN else "known"
    assert gap == {"missing": "a", "because": cause, "then": f"b are not {verb}"}
