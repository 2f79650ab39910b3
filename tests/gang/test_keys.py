"""Every key of gangs with valid, invalid and unusual values."""

from __future__ import annotations

from typing import Final

import pytest

from koord.api import gang
from koord.api.gang import BadSetting, GangDefaults, GangSettings, NameSource
from koord.api.keys import gang as keys
from koord.api.keys import operators

Texts = dict[str, str]

DEFAULTS: Final = GangDefaults(wait_seconds=77, match_policy="waiting-and-running")
HUGE: Final = "9" * 400
ODD_TEXTS: Final = ("1e3", "-1", " ", "{}", "true", "\u0664", "\ud83d\ude00", "\x00", HUGE)
INTEGERS: Final[dict[str, int | None]] = {
    "": None, "0": 0, "1": 1, "007": 7, "+3": 3, "-0": 0, "-1": -1, "2147483647": 2**31 - 1,
    "2147483648": None, "-2147483649": None, HUGE: None, "1e3": None, "1.0": None, "0x10": None,
    "1_000": None, "1,000": None, " 3": None, "3 ": None, "3\n": None, "\u0663": None,
    "++3": None, "+": None, "NaN": None, "true": None, '"3"': None, "three": None,
}  # fmt: skip
"""Text -> the number that Go reads in 32 bits, None where it reads none."""


def read_pod(annotations: Texts, labels: Texts | None = None) -> gang.PodGang:
    found = gang.parse_pod_gang("ns", labels or {}, {keys.NAME: "a"} | annotations, DEFAULTS)
    assert found is not None
    return found


def read_group(annotations: Texts) -> tuple[GangSettings, tuple[BadSetting, ...]]:
    return gang.parse_pod_group_settings("ns/a", 2, None, annotations, DEFAULTS)


def is_reported(bad: tuple[BadSetting, ...], key: str) -> bool:
    """Whether exactly this key is reported, with texts of limited length."""
    assert all(len(one.value) <= gang.MAX_SHOWN + 1 and one.problem for one in bad)
    assert {one.key for one in bad} <= {key}
    return bool(bad)


@pytest.mark.parametrize(("text", "number"), INTEGERS.items(), ids=repr)
def test_minimum_by_annotation(text: str, number: int | None) -> None:
    found = read_pod({keys.MIN_AVAILABLE: text})
    is_usable = number is not None and number >= 0
    assert (found.settings is not None) is is_usable
    assert is_reported(found.bad, keys.MIN_AVAILABLE) is not is_usable
    if found.settings is not None:
        assert found.settings.min_member == number


@pytest.mark.parametrize(("text", "number"), INTEGERS.items(), ids=repr)
def test_invalid_deprecated_label_does_not_fall_back(text: str, number: int | None) -> None:
    found = read_pod({keys.MIN_AVAILABLE: "4"}, {keys.LEGACY_MIN_AVAILABLE: text})
    if not text:
        assert found.settings is not None
        assert found.settings.min_member == 4
        return
    is_usable = number is not None and number >= 0
    assert (found.settings is not None) is is_usable
    assert is_reported(found.bad, keys.LEGACY_MIN_AVAILABLE) is not is_usable
    assert found.deprecated == ((keys.LEGACY_MIN_AVAILABLE, keys.MIN_AVAILABLE),)
    if found.settings is not None:
        assert found.settings.min_member == number


@pytest.mark.parametrize(("text", "number"), INTEGERS.items(), ids=repr)
def test_total_number(text: str, number: int | None) -> None:
    is_usable = number is not None and number >= 2
    expected = number if is_usable else 2
    pod = read_pod({keys.MIN_AVAILABLE: "2", keys.TOTAL_NUMBER: text})
    assert pod.settings is not None
    for settings, bad in ((pod.settings, pod.bad), read_group({keys.TOTAL_NUMBER: text})):
        assert settings.total == expected
        assert is_reported(bad, keys.TOTAL_NUMBER) is (bool(text) and not is_usable)


@pytest.mark.parametrize(("text", "number"), INTEGERS.items(), ids=repr)
def test_index(text: str, number: int | None) -> None:
    index = gang.parse_topology_index(text)
    if text and (number is None or number < 0):
        assert isinstance(index, gang.BadSetting)
        assert (index.key, index.in_force) == (keys.NETWORK_TOPOLOGY_INDEX, "none")
    else:
        assert index == (gang.NO_INDEX if number is None else number)


@pytest.mark.parametrize(("text", "number"), INTEGERS.items(), ids=repr)
def test_size_of_a_group_of_kueue(text: str, number: int | None) -> None:
    found = gang.parse_pod_gang("ns", {keys.KUEUE_NAME: "q"}, {keys.KUEUE_TOTAL: text}, DEFAULTS)
    assert found is not None
    is_usable = number is not None and number >= 0
    assert (found.settings is not None) is is_usable
    assert is_reported(found.bad, keys.KUEUE_TOTAL) is not is_usable
    if found.settings is not None:
        assert (found.settings.min_member, found.settings.wait_seconds) == (number, 77)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30), ("5m", 300), ("1h0m1s", 3601), ("+5s", 5), ("1.5s", 2), ("1ms", 1),
        ("0", None), ("0s", None), ("-1s", None), ("-1", None), ("10", None), ("1e3", None),
        ("1e3s", None), ("1d", None), (" 5s", None), ("5s ", None), ("5 s", None), ("5S", None),
        ("soon", None), ("9999999h", None), (HUGE, None), (HUGE + "s", None), ("\u0665s", None),
    ],
)  # fmt: skip
def test_waiting_time(text: str, seconds: int | None) -> None:
    found = read_pod({keys.MIN_AVAILABLE: "1", keys.WAITING_TIME: text})
    assert found.settings is not None
    assert found.settings.wait_seconds == (77 if seconds is None else seconds)
    assert is_reported(found.bad, keys.WAITING_TIME) is (seconds is None)
    settings, bad = read_group({keys.WAITING_TIME: text})
    assert (settings.wait_seconds, bad) == (77, ()), "a PodGroup has a field for it"


@pytest.mark.parametrize(
    ("seconds", "expected"), [(None, 77), (0, 77), (-1, 77), (1, 1), (2**31 - 1, 2**31 - 1)]
)
def test_wait_time_of_a_pod_group(seconds: int | None, expected: int) -> None:
    settings, bad = gang.parse_pod_group_settings("ns/a", 1, seconds, {}, DEFAULTS)
    assert (settings.wait_seconds, bad) == (expected, ())


CHOICES: Final = (
    (keys.MODE, "mode", ("Strict", "NonStrict"), "Strict"),
    (
        keys.MATCH_POLICY,
        "match_policy",
        ("once-satisfied", "only-waiting", "waiting-and-running"),
        "waiting-and-running",
    ),
    (
        keys.MATCH_POLICY_ALIAS,
        "match_policy",
        ("once-satisfied", "only-waiting", "waiting-and-running"),
        "waiting-and-running",
    ),
    (
        operators.ON_MEMBER_FAILURE,
        "on_member_failure",
        ("Replace", "RestartGang", "Ignore"),
        "Replace",
    ),
    (operators.ON_BIND_FAILURE, "on_bind_failure", ("Retry", "RestartGang"), "Retry"),
    (operators.KEPT_ROOM, "kept_room", ("Keep", "GiveUp"), "Keep"),
)


@pytest.mark.parametrize(("key", "field", "choices", "default"), CHOICES, ids=str)
def test_choices(key: str, field: str, choices: tuple[str, ...], default: str) -> None:
    odd = [odd for one in choices for odd in (one.lower() + " ", one.upper(), f" {one}", one[:-1])]
    for text in ("", *choices, *odd, *ODD_TEXTS):
        expected = text if text in choices else default
        pod = read_pod({keys.MIN_AVAILABLE: "2", key: text})
        assert pod.settings is not None
        for settings, bad in ((pod.settings, pod.bad), read_group({key: text})):
            assert getattr(settings, field) == expected, text
            assert is_reported(bad, key) is (bool(text) and text not in choices), text


@pytest.mark.parametrize("wrong", ["", "nonsense"])
@pytest.mark.parametrize(("key", "alias"), [(keys.MATCH_POLICY, keys.MATCH_POLICY_ALIAS)])
def test_alias_is_used_if_the_key_is_absent_not_if_invalid(
    key: str, alias: str, wrong: str
) -> None:
    settings, bad = read_group({key: wrong, alias: "only-waiting"})
    assert settings.match_policy == ("waiting-and-running" if wrong else "only-waiting")
    assert is_reported(bad, key) is bool(wrong)


LISTS: Final[dict[str, tuple[str, ...] | None]] = {
    "": (), "null": (), "[]": (), '["ns/b"]': ("ns/b",), '["ns/b","ns/a","ns/b"]': ("ns/a", "ns/b"),
    '[ "x/a.b-c" ]': ("x/a.b-c",), "{}": None, '"ns/b"': None, "ns/b": None, "- ns/b": None,
    "[ns/b]": None, "['ns/b']": None, "[1]": None, "[null]": None, '[["ns/b"]]': None, "1e3": None,
    "-1": None, "NaN": None, "[" * 9000: None, "[" + HUGE * 99 + "]": None,
}  # fmt: skip


@pytest.mark.parametrize(("text", "listed"), LISTS.items(), ids=lambda one: repr(one)[:20])
def test_groups(text: str, listed: tuple[str, ...] | None) -> None:
    pod = read_pod({keys.MIN_AVAILABLE: "2", keys.GROUPS: text})
    assert pod.settings is not None
    for settings, bad in ((pod.settings, pod.bad), read_group({keys.GROUPS: text})):
        assert settings.groups == (listed or ("ns/a",))
        assert is_reported(bad, keys.GROUPS) is (listed is None)


RULE: Final = '{"gatherStrategy":[{"layer":"Rack","strategy":"MustGather"}]}'


@pytest.mark.parametrize(
    ("key", "field", "good"),
    [
        (keys.NETWORK_TOPOLOGY_SPEC, "topology", RULE),
        (operators.SUB_GROUPS, "sub_groups", '{"groups":[{"name":"g"}]}'),
    ],
)
def test_invalid_json_is_reported(key: str, field: str, good: str) -> None:
    bad_texts = ("null", "[]", "1e3", "-1", "x", good[:-1], f"{good}x", "{'a': 1}", "[" * 9000)
    for text in ("", good, f" {good}\n", *bad_texts, f'{{"groups": [], "x": "{HUGE * 999}"}}'):
        is_good = text.strip() == good
        pod = read_pod({keys.MIN_AVAILABLE: "2", key: text})
        assert pod.settings is not None
        for settings, bad in ((pod.settings, pod.bad), read_group({key: text})):
            assert (getattr(settings, field) is not None) is is_good, text
            assert is_reported(bad, key) is (bool(text) and not is_good), text


def test_any_text_names_a_topology() -> None:
    for text in ("", "default", *ODD_TEXTS):
        settings, bad = read_group({operators.TOPOLOGY: text})
        assert (settings.topology_name, bad) == (text, ())


def test_keys_without_effect_on_a_pod_group() -> None:
    """They apply to pods without PodGroup, or were never used."""
    unused = (keys.NAME, keys.MIN_AVAILABLE, keys.WAITING_TIME, keys.TIMEOUT, keys.POD_GROUP)
    assert read_group(dict.fromkeys((*unused, operators.SUB_GROUP), "1e3")) == read_group({})


SOURCES: Final = (
    ("label", {keys.POD_GROUP: "label"}, {}, NameSource.POD_GROUP_LABEL),
    ("legacy", {keys.LEGACY_NAME: "legacy"}, {}, NameSource.LEGACY_LABEL),
    ("annotation", {}, {keys.NAME: "annotation"}, NameSource.ANNOTATION),
    ("scheduling.k8s.io:native", {}, {}, NameSource.NATIVE),
    ("kueue.x-k8s.io:kueue", {keys.KUEUE_NAME: "kueue"}, {}, NameSource.KUEUE),
)
"""Every way to name a gang, in order of precedence."""


@pytest.mark.parametrize("first", range(len(SOURCES)), ids=[one[0] for one in SOURCES])
def test_precedence_of_names(first: int) -> None:
    """Each takes precedence over those below it; an empty one is ignored."""
    labels: Texts = dict.fromkeys((keys.POD_GROUP, keys.LEGACY_NAME, keys.KUEUE_NAME), "")
    annotations: Texts = {keys.NAME: ""}
    for _, more_labels, more_annotations, _ in SOURCES[first:]:
        labels |= more_labels
        annotations |= more_annotations
    native = "native" if first <= 3 else ""
    found = gang.parse_pod_gang("ns", labels, annotations, DEFAULTS, native)
    assert found is not None
    name, _, _, source = SOURCES[first]
    assert (found.name, found.source) == (name, source)


def test_pod_without_a_name_has_no_gang() -> None:
    empty = dict.fromkeys((keys.POD_GROUP, keys.LEGACY_NAME, keys.KUEUE_NAME), "")
    settings = {keys.MIN_AVAILABLE: "2", keys.GROUPS: '["ns/b"]', keys.KUEUE_TOTAL: "2"}
    assert gang.parse_pod_gang("ns", empty, {keys.NAME: "", **settings}, DEFAULTS) is None


@pytest.mark.parametrize("key", [keys.LEGACY_NAME, keys.NAME])
@pytest.mark.parametrize("name", [*ODD_TEXTS, "a/b", "A b", "x" * 253, "x" * 254, "a,b"])
def test_unusual_names(key: str, name: str) -> None:
    """Any text names a gang, unless it is ambiguous or too long for an object."""
    labels = {key: name} if key == keys.LEGACY_NAME else {}
    annotations = {keys.MIN_AVAILABLE: "1"} | ({} if labels else {key: name})
    found = gang.parse_pod_gang("ns", labels, annotations, DEFAULTS)
    assert found is not None
    is_usable = len(name) <= 253 and "," not in name
    assert (found.settings is not None) is is_usable
    assert (found.name == name) is is_usable
    assert is_reported(found.bad, keys.NAME) is not is_usable
