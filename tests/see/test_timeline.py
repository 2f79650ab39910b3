"""What happened in the cluster, from all that tells of it; of others nothing is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod
from tests.cli.readings import make_condition
from tests.cluster import make_cluster
from tests.see.test_app import HERE, RECORDS, make_record

from koord.answers.reading import Extent, Gap, Reading, TargetDetails, TargetKind
from koord.answers.redaction import Sight
from koord.answers.timeline import TimelineEntry, make_timeline
from koord.core.model.gang_history import Episode
from koord.core.model.reason_class import ReasonClass
from koord.domains.placement import PODS
from koord.domains.quota import QUOTAS


def tell(entry: TimelineEntry) -> tuple[str, str, str]:
    return entry.kind, entry.happening.ref, entry.happening.what


def test_records_are_told_with_who_leads() -> None:
    entries = make_timeline(Reading(make_cluster(1).state), HERE, RECORDS)
    assert [tell(entry) for entry in entries] == [
        ("operators", "", "NewLeader"),
        ("podgroup", "default/train", "Running"),
        ("podgroup", "default/train", "Preempted"),
        ("podgroup", "other/x", "Running"),
        ("podgroup", "default/train", "InsufficientNodes"),
    ]
    assert entries[-1].reason_class is ReasonClass.ROOM


def test_without_records_histories_and_sick_nodes_are_told() -> None:
    cluster = make_cluster(1).gang("train", 2)
    pod_group = cluster.state.gangs.pod_group("default/train")
    assert pod_group is not None
    episode = Episode(1_790_000_000, "Reclaimed", "its quota used too much", "default/x")
    cluster.pod_groups(replace(pod_group, history=(episode,)))
    (entry,) = make_timeline(Reading(cluster.state), HERE, ())
    assert tell(entry) == ("podgroup", "default/train", "Reclaimed")
    assert entry.at == 1_790_000_000_000


@pytest.mark.parametrize("is_own", [True, False])
def test_of_others_nothing_is_told(*, is_own: bool) -> None:
    """By what was read with her own rights, or by what she may see of what was read."""
    state = make_cluster(1).state
    reading = Reading(state, gaps=(Gap(PODS, Extent.NAMESPACE),))
    if not is_own:
        reading = Reading(state, sight=Sight(frozenset({"default"}), quotas=False))
    entries = make_timeline(reading, HERE, RECORDS)
    assert "other/x" not in repr(entries)
    assert [entry.happening.by for entry in entries if entry.happening.what == "Preempted"] == [
        "a gang in another namespace"
    ]


@pytest.mark.parametrize("sees", [True, False])
def test_changes_of_quotas_are_told_to_who_may_list_them(*, sees: bool) -> None:
    change = {"field": "max.nvidia.com/gpu", "from": "8", "to": ""}
    record = make_record("default/x", 9, "Changed") | {"quota": "secret", "changes": [change]}
    del record["unit"]
    readings = [Reading(make_cluster(1).state, sight=Sight(frozenset({"default"}), quotas=sees))]
    if not sees:
        readings.append(Reading(make_cluster(1).state, gaps=(Gap(QUOTAS, Extent.NAMESPACE),)))
    for reading in readings:
        texts = [entry.happening.text for entry in make_timeline(reading, HERE, [record])]
        assert texts == ["quota secret: max.nvidia.com/gpu from 8 to nothing"] * sees


def test_members_that_say_what_their_gang_says_are_not_told_of() -> None:
    """A gang of hundreds that waits would hide what broke at that time."""
    cluster = make_cluster(1).gang("train", 2)
    full, other = (
        TargetDetails({code: make_condition(code, "False", code)})
        for code in ("InsufficientNodes", "InsufficientMax")
    )
    details = {
        (TargetKind.POD_GROUP, "default/train"): full,
        (TargetKind.POD, "default/train-0"): full,
        (TargetKind.POD, "default/train-1"): other,
        (TargetKind.POD, "default/alone"): full,
    }
    entries = make_timeline(Reading(cluster.state, all_details=details), HERE, ())
    assert {(entry.happening.ref, entry.happening.what) for entry in entries} == {
        ("default/train", "InsufficientNodes"),
        ("default/train-1", "InsufficientMax"),
        ("default/alone", "InsufficientNodes"),
    }


@given(st.lists(st.sampled_from(["default/a", "default/b"]), max_size=6))
def test_keys_are_unique(refs: list[str]) -> None:
    records = [make_record(ref, 1, "Running") for ref in refs]
    entries = make_timeline(Reading(make_cluster(1).state), HERE, records)
    assert len({entry.key for entry in entries}) == len(entries) == len(refs)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["at", "kind", "unit", "code", "by", "text", "repeats", "holder"]),
            st.sampled_from(
                ["Attempt", "Term", "2026-11-25T03:00:00Z", 3, None, {"key": "a/b"}, []]
            ),
        ),
        max_size=4,
    )
)
def test_records_may_be_anything(records: list[dict[str, object]]) -> None:
    node = make_node("n").gpu(1)
    cluster = make_cluster(0).nodes(node).pods(make_pod("p").gpu(1))
    make_timeline(Reading(cluster.state), HERE, records)
