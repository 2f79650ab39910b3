"""Gang settings of pods and PodGroups, and the values used."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.api import gang
from koord.api.gang import BadSetting, GangDefaults, NameSource
from koord.api.keys import gang as keys
from koord.api.keys import operators

NAMED = {keys.NAME: "a"}
HUGE = "x" * (1 << 20)


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({}, {}, None),
        ({keys.POD_GROUP: ""}, {keys.NAME: ""}, None),
        ({}, NAMED, ("a", NameSource.ANNOTATION)),
        ({keys.LEGACY_NAME: "b"}, NAMED, ("b", NameSource.LEGACY_LABEL)),
        ({keys.POD_GROUP: "c", keys.LEGACY_NAME: "b"}, NAMED, ("c", NameSource.POD_GROUP_LABEL)),
        ({keys.POD_GROUP: "", keys.LEGACY_NAME: "b"}, NAMED, ("b", NameSource.LEGACY_LABEL)),
    ],
)
def test_first_nonempty_name_wins(
    labels: dict[str, str], annotations: dict[str, str], expected: tuple[str, str] | None
) -> None:
    assert gang.parse_gang_name(labels, annotations) == expected


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({}, {keys.MIN_AVAILABLE: "3"}, 3),
        ({}, {keys.MIN_AVAILABLE: "0"}, 0),
        ({keys.LEGACY_MIN_AVAILABLE: "2"}, {keys.MIN_AVAILABLE: "3"}, 2),
        ({keys.LEGACY_MIN_AVAILABLE: "x"}, {keys.MIN_AVAILABLE: "3"}, keys.LEGACY_MIN_AVAILABLE),
        ({}, {keys.MIN_AVAILABLE: "-1"}, keys.MIN_AVAILABLE),
        ({}, {keys.MIN_AVAILABLE: "1_0"}, keys.MIN_AVAILABLE),
        ({}, {keys.MIN_AVAILABLE: " 1"}, keys.MIN_AVAILABLE),
        ({}, {keys.MIN_AVAILABLE: "2147483648"}, keys.MIN_AVAILABLE),
        ({}, {keys.MIN_AVAILABLE: "9" * 5000}, keys.MIN_AVAILABLE),
        ({}, {}, keys.MIN_AVAILABLE),
    ],
)
def test_minimum(labels: dict[str, str], annotations: dict[str, str], expected: int | str) -> None:
    minimum = gang.parse_min_available(labels, annotations)
    assert (minimum.key if isinstance(minimum, BadSetting) else minimum) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30), ("5m", 300), ("1h30m", 5400), ("1.5h", 5400), (".5m", 30), ("1.s", 1),
        ("1500ms", 2), ("1ns", 1), ("0", 0), ("0s", 0), ("-5s", -5), ("+5s", 5), ("2µs", 1),
        ("", None), ("30", None), ("s", None), ("1m30", None), ("1d", None), ("1 m", None),
        (".s", None), ("9999999h", None), ("1e3s", None), ("--1s", None), (HUGE, None),
    ],
)  # fmt: skip
def test_go_durations(text: str, seconds: int | None) -> None:
    assert gang.parse_duration_seconds(text) == seconds


@given(st.text(alphabet="0123456789.hmsnuµ+-e ", max_size=70))
def test_any_text_is_accepted_as_duration(text: str) -> None:
    seconds = gang.parse_duration_seconds(text)
    assert seconds is None or abs(seconds) <= 2**63 // 10**9 + 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("null", None),
        ("[]", ()),
        ('["ns/b","ns/a"]', ("ns/b", "ns/a")),
        ("a,b", "bad"),
        ('{"a":"b"}', "bad"),
        ("[1]", "bad"),
        ("- ns/a", "bad"),
        ('"ns/a"', "bad"),
        (r'["ns/\ud800"]', "bad"),
        ("[" * 5000, "bad"),
        ("[" + "9" * 9000 + "]", "bad"),
        (json.dumps([HUGE]), "bad"),
    ],
)
def test_group_lists(text: str, expected: tuple[str, ...] | str | None) -> None:
    groups = gang.parse_groups(text)
    if isinstance(groups, BadSetting):
        assert expected == "bad"
        assert len(groups.value) <= gang.MAX_SHOWN + 1
    else:
        assert groups == expected


def test_annotations_of_a_pod_with_the_label_are_ignored() -> None:
    annotations = {**NAMED, keys.MIN_AVAILABLE: "3", keys.MODE: "nonsense"}
    read = gang.parse_pod_gang("ns", {keys.POD_GROUP: "pg"}, annotations)
    assert read == gang.PodGang("pg", NameSource.POD_GROUP_LABEL)


def test_settings_of_a_pod() -> None:
    annotations = NAMED | {
        keys.MIN_AVAILABLE: "2",
        keys.TOTAL_NUMBER: "5",
        keys.WAITING_TIME: "90s",
        keys.MODE: "NonStrict",
        keys.MATCH_POLICY: "only-waiting",
        keys.GROUPS: '["ns/b","ns/a","ns/b"]',
    }
    read = gang.parse_pod_gang("ns", {}, annotations)
    assert read is not None
    assert read.settings == gang.GangSettings(
        *(2, 5, 90, "NonStrict", "only-waiting", ("ns/a", "ns/b")),
        on_member_failure="RestartGang",
    )
    assert read.bad == ()


def test_defaults() -> None:
    read = gang.parse_pod_gang("ns", {}, NAMED | {keys.MIN_AVAILABLE: "2"})
    assert read is not None
    assert read.settings == gang.GangSettings(2, 2, 600, "Strict", "once-satisfied", ("ns/a",))
    own = GangDefaults(wait_seconds=60, match_policy="waiting-and-running")
    read = gang.parse_pod_gang("ns", {}, NAMED | {keys.MIN_AVAILABLE: "2"}, own)
    assert read is not None
    assert read.settings is not None
    assert (read.settings.wait_seconds, read.settings.match_policy) == (60, "waiting-and-running")


@pytest.mark.parametrize(
    ("key", "value", "in_force"),
    [
        (keys.TOTAL_NUMBER, "x", "2"),
        (keys.TOTAL_NUMBER, "0", "2"),
        (keys.TOTAL_NUMBER, "1", "2"),
        (keys.WAITING_TIME, "0s", "600s"),
        (keys.WAITING_TIME, "-1m", "600s"),
        (keys.WAITING_TIME, "soon", "600s"),
        (keys.MODE, "strict", "Strict"),
        (keys.MATCH_POLICY, "always", "once-satisfied"),
        (keys.MATCH_POLICY_ALIAS, "always", "once-satisfied"),
        (keys.GROUPS, "a,b", '["ns/a"]'),
    ],
)
def test_invalid_value_is_reported_and_the_default_used(
    key: str, value: str, in_force: str
) -> None:
    read = gang.parse_pod_gang("ns", {}, NAMED | {keys.MIN_AVAILABLE: "2", key: value})
    assert read is not None
    assert read.settings == gang.GangSettings(2, 2, 600, "Strict", "once-satisfied", ("ns/a",))
    assert [(bad.key, bad.value, bad.in_force) for bad in read.bad] == [(key, value, in_force)]


def test_invalid_entry_of_a_list_is_reported_and_kept() -> None:
    read = gang.parse_pod_gang(
        "ns", {}, NAMED | {keys.MIN_AVAILABLE: "1", keys.GROUPS: '["b","ns/a"]'}
    )
    assert read is not None
    assert read.settings is not None
    assert read.settings.groups == ("b", "ns/a")
    assert [bad.key for bad in read.bad] == [keys.GROUPS]


def test_match_policy_takes_precedence_over_its_alias() -> None:
    annotations = NAMED | {keys.MIN_AVAILABLE: "1", keys.MATCH_POLICY_ALIAS: "only-waiting"}
    read = gang.parse_pod_gang("ns", {}, annotations)
    assert read is not None
    assert read.settings is not None
    assert read.settings.match_policy == "only-waiting"
    read = gang.parse_pod_gang("ns", {}, annotations | {keys.MATCH_POLICY: "waiting-and-running"})
    assert read is not None
    assert read.settings is not None
    assert read.settings.match_policy == "waiting-and-running"


def test_long_values_are_cut() -> None:
    annotations = NAMED | dict.fromkeys(
        (keys.MIN_AVAILABLE, keys.TOTAL_NUMBER, keys.WAITING_TIME, keys.MODE, keys.GROUPS), HUGE
    )
    read = gang.parse_pod_gang("ns", {}, annotations)
    assert read is not None
    assert len(repr(read)) < 2000
    read = gang.parse_pod_gang("ns", {}, {keys.NAME: HUGE, keys.MIN_AVAILABLE: "1"})
    assert read is not None
    assert read.settings is None
    assert len(repr(read)) < 2000


@pytest.mark.parametrize(("seconds", "expected"), [(None, 600), (0, 600), (-1, 600), (30, 30)])
def test_wait_time_of_a_pod_group(seconds: int | None, expected: int) -> None:
    settings, bad = gang.parse_pod_group_settings("ns/a", 1, seconds, {})
    assert (settings.wait_seconds, bad) == (expected, ())


def test_waiting_time_annotation_of_a_pod_group_is_ignored() -> None:
    settings, bad = gang.parse_pod_group_settings("ns/a", 1, 30, {keys.WAITING_TIME: "5m"})
    assert (settings.wait_seconds, bad) == (30, ())


def test_bind_record_is_written_under_both_keys() -> None:
    assert gang.encode_bind_record("ns/a,ns/b", 4) == {
        "internal.scheduling.koordinator.sh/bind-gang-group-id": "ns/a,ns/b",
        "internal.scheduling.koordinator.sh/bind-gang-member-count": "4",
        "scheduling.koordinator.sh/bind-gang-group-id": "ns/a,ns/b",
        "scheduling.koordinator.sh/bind-gang-member-count": "4",
    }


@pytest.mark.parametrize("name", ["a,ns/b", ",", HUGE, "a," + HUGE])
def test_ambiguous_names_are_invalid(name: str) -> None:
    read = gang.parse_pod_gang("ns", {}, {keys.NAME: name, keys.MIN_AVAILABLE: "1"})
    assert read is not None
    assert read.settings is None
    assert "," not in read.name
    assert len(read.name) <= gang.MAX_NAME + 1
    assert [bad.key for bad in read.bad] == [keys.NAME]


def test_deprecated_labels_are_reported_with_their_replacement() -> None:
    labels = {keys.LEGACY_NAME: "a", keys.LEGACY_MIN_AVAILABLE: "2"}
    found = gang.parse_pod_gang("default", labels, {})
    assert found is not None
    assert found.deprecated == (
        (keys.LEGACY_NAME, keys.NAME),
        (keys.LEGACY_MIN_AVAILABLE, keys.MIN_AVAILABLE),
    )
    named = gang.parse_pod_gang("default", {**labels, keys.POD_GROUP: "a"}, {})
    assert named is not None
    assert named.deprecated == ()


def read_sub_groups(*groups: dict[str, object]) -> gang.PodGang:
    text = json.dumps({"groups": groups})
    found = gang.parse_pod_gang(
        "ns", {}, NAMED | {keys.MIN_AVAILABLE: "2", operators.SUB_GROUPS: text}
    )
    assert found is not None
    return found


def test_sub_groups_are_read() -> None:
    found = read_sub_groups(
        {"name": "a", "minSubGroups": 1}, {"name": "b", "parent": "a", "minMember": 2}
    )
    assert found.bad == ()
    assert found.settings is not None
    assert found.settings.sub_groups is not None
    assert [one.parent for one in found.settings.sub_groups.groups] == ["", "a"]


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ([{"name": "a"}, {"name": "a"}], 'names "a" twice'),
        ([{"name": "a", "parent": "b"}], 'names "b" as a parent'),
        ([{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}], "in a circle"),
        ([{"name": f"g{n}", "parent": f"g{n - 1}" if n else ""} for n in range(9)], "more than 8"),
        ([], "groups"),
        ([{"name": ""}], "name"),
        ([{"name": "a", "minMember": -1}], "minMember"),
    ],
)
def test_sub_groups_that_are_no_tree_are_reported_and_ignored(
    groups: list[dict[str, object]], problem: str
) -> None:
    found = read_sub_groups(*groups)
    assert [(one.key, one.in_force) for one in found.bad] == [(operators.SUB_GROUPS, "none")]
    assert problem in found.bad[0].problem
    assert found.settings is not None
    assert found.settings.sub_groups is None


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ('{"minSubGroups": 2, "groups": [{"name": "a"}]}', "the gang"),
        ('{"groups": [{"name": "a", "minSubGroups": 2}, {"name": "b", "parent": "a"}]}', '"a"'),
    ],
)
def test_min_sub_groups_above_their_number_is_reported(text: str, group: str) -> None:
    found = gang.parse_pod_gang(
        "ns", {}, NAMED | {keys.MIN_AVAILABLE: "2", operators.SUB_GROUPS: text}
    )
    assert found is not None
    assert found.settings is not None
    assert found.settings.sub_groups is not None, "the list is used, and all are needed"
    assert [(bad.key, bad.in_force) for bad in found.bad] == [(operators.SUB_GROUPS, "1")]
    assert f"{group} needs 2" in found.bad[0].problem


@pytest.mark.parametrize("policy", ["once-satisfied", "only-waiting", "waiting-and-running"])
def test_default_on_member_failure_depends_on_match_policy(
    policy: str,
) -> None:
    annotations = NAMED | {keys.MIN_AVAILABLE: "2", keys.MATCH_POLICY: policy}
    expected = "RestartGang" if policy == "only-waiting" else "Replace"
    for written, in_force in (("", expected), ("Ignore", "Ignore"), ("ignore", expected)):
        found = gang.parse_pod_gang("ns", {}, annotations | {operators.ON_MEMBER_FAILURE: written})
        assert found is not None
        assert found.settings is not None
        assert found.settings.on_member_failure == in_force
        assert bool(found.bad) is (written == "ignore")
