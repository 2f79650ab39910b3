"""Gangs: from labels and annotations to settings, and the annotations written at the bind.

Every reader takes plain mappings and never raises: a value that cannot be used becomes a
`BadSetting`, and the default that upstream has for it is in force. What follows from the settings
is decided elsewhere; this module knows no pod and no PodGroup.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from koord.api.annotations import (
    NETWORK_TOPOLOGY_SPEC,
    SUB_GROUPS,
    NetworkTopologySpec,
    SubGroups,
)
from koord.api.keys import gang as keys
from koord.api.keys import kubernetes, operators
from koord.api.parse import InvalidObject, JsonAnnotation
from koord.api.quantity import parse_duration_seconds

T = TypeVar("T")
Texts = Mapping[str, str]
"""Labels or annotations."""

DEPRECATED: Final = {
    keys.LEGACY_NAME: keys.NAME,
    keys.LEGACY_MIN_AVAILABLE: keys.MIN_AVAILABLE,
}
"""Labels of pods, and the annotations to use instead."""
MODES: Final = ("Strict", "NonStrict")
MATCH_POLICIES: Final = ("once-satisfied", "only-waiting", "waiting-and-running")
ON_MEMBER_FAILURE: Final = ("Replace", "RestartGang", "Ignore")
ON_BIND_FAILURE: Final = ("Retry", "RestartGang")
MAX_INTEGER: Final = 2**31 - 1
MAX_LEVELS: Final = 8
"""How deep sub-groups may be nested."""
MAX_NAME: Final = 253
"""Longer names fit no object of Kubernetes; their gangs cannot start."""
MAX_GROUPS_TEXT: Final = 32 * 1024
"""Longer lists are refused unread: the group is recorded on every member, several times over."""
GROUP_SEPARATOR: Final = ","
"""Stands between the gangs in the identity of a group: in a name it would make two groups one."""
MAX_SHOWN: Final = 80
"""Longer values are cut where they are quoted."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_GANG_KEY: Final = re.compile(r"[a-z0-9.-]+/[^/\s]+", re.IGNORECASE | re.ASCII)


class NameSource(StrEnum):
    """Which key named the gang, in the order of precedence."""

    POD_GROUP_LABEL = "PodGroupLabel"
    LEGACY_LABEL = "LegacyLabel"
    ANNOTATION = "Annotation"
    NATIVE = "Native"
    KUEUE = "Kueue"


@dataclass(frozen=True, slots=True)
class BadSetting:
    """A setting that cannot be used: what was written (cut), what is wrong, what is in force."""

    key: str
    value: str
    problem: str
    in_force: str


@dataclass(frozen=True, slots=True)
class GangDefaults:
    """What is in force where nothing usable is written."""

    wait_seconds: int = 600
    match_policy: str = "once-satisfied"


@dataclass(frozen=True, slots=True)
class GangSettings:
    """The settings of one gang, every default applied. ``groups`` is sorted, without repetition."""

    min_member: int
    total: int
    wait_seconds: int
    mode: str
    match_policy: str
    groups: tuple[str, ...]
    topology: NetworkTopologySpec | None = None
    topology_name: str = ""
    on_member_failure: str = "Replace"
    on_bind_failure: str = "Retry"
    sub_groups: SubGroups | None = None


@dataclass(frozen=True, slots=True)
class PodGang:
    """What a pod says of its gang.

    ``settings`` is None when the PodGroup label names the gang (the object carries the settings,
    the pod's own annotations do not count) or when the pod brings no usable minimum.
    """

    name: str
    source: NameSource
    settings: GangSettings | None = None
    bad: tuple[BadSetting, ...] = ()
    deprecated: tuple[tuple[str, str], ...] = ()
    """Keys in use that should not be, each with the one to use instead."""


UPSTREAM_DEFAULTS: Final = GangDefaults()


def parse_gang_name(labels: Texts, annotations: Texts) -> tuple[str, NameSource] | None:
    """Return the name of a pod's gang and where it stands; the first that is not empty wins."""
    if name := labels.get(keys.POD_GROUP):
        return name, NameSource.POD_GROUP_LABEL
    if name := labels.get(keys.LEGACY_NAME):
        return name, NameSource.LEGACY_LABEL
    if name := annotations.get(keys.NAME):
        return name, NameSource.ANNOTATION
    return None


def make_foreign_name(group: str, name: str) -> str:
    """Return the name of a gang that others declare: no name of ours can be equal to it."""
    return f"{group}:{name}"


def parse_min_available(labels: Texts, annotations: Texts) -> int | BadSetting:
    """Return the minimum of a gang without PodGroup.

    A legacy label that is no number is an error; it does not fall through to the annotation.
    """
    if text := labels.get(keys.LEGACY_MIN_AVAILABLE):
        return _parse_min(keys.LEGACY_MIN_AVAILABLE, text)
    return _parse_min(keys.MIN_AVAILABLE, annotations.get(keys.MIN_AVAILABLE, ""))


def parse_groups(text: str) -> tuple[str, ...] | BadSetting | None:
    """Read a group list as it is written: None if there is none."""
    if not text:
        return None
    if len(text) > MAX_GROUPS_TEXT:
        return _bad_groups(text, f"is longer than {MAX_GROUPS_TEXT} characters")
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return _bad_groups(text, 'is not a JSON list like ["ns/gang-a","ns/gang-b"]')
    if value is None:
        return None
    if not isinstance(value, list) or not all(map(_is_text, value)):
        return _bad_groups(text, 'must be a JSON list of texts like ["ns/gang-a","ns/gang-b"]')
    return tuple(value)


def resolve_wait_seconds(seconds: int | None, defaults: GangDefaults = UPSTREAM_DEFAULTS) -> int:
    """Return the wait time of a PodGroup: nothing, 0 or less mean the default."""
    return seconds if seconds is not None and seconds > 0 else defaults.wait_seconds


def parse_pod_gang(
    namespace: str,
    labels: Texts,
    annotations: Texts,
    defaults: GangDefaults = UPSTREAM_DEFAULTS,
    native: str = "",
) -> PodGang | None:
    """Read everything that a pod says of its gang; None for a pod without one.

    ``native`` is the PodGroup of Kubernetes' own that it names. Koordinator's keys go before it,
    and it goes before the label of Kueue.
    """
    named = parse_gang_name(labels, annotations)
    if named is None and native:
        return PodGang(make_foreign_name(kubernetes.NATIVE_GROUP, native), NameSource.NATIVE)
    if named is None:
        return _parse_kueue(namespace, labels, annotations, defaults)
    name, source = named
    if source is NameSource.POD_GROUP_LABEL:
        return PodGang(name, source)
    if problem := _find_name_problem(name):
        bad = BadSetting(keys.NAME, cut(name), problem, "none, so the gang cannot start")
        return PodGang(f"{name[:MAX_NAME].replace(GROUP_SEPARATOR, '…')}…", source, None, (bad,))
    reader = _Reader(f"{namespace}/{name}", annotations, defaults)
    wait_seconds = reader.wait_seconds()
    min_member = parse_min_available(labels, annotations)
    deprecated = tuple((old, new) for old, new in DEPRECATED.items() if labels.get(old))
    if isinstance(min_member, BadSetting):
        return PodGang(name, source, None, (min_member, *reader.bad), deprecated)
    settings = reader.settings(min_member, wait_seconds)
    return PodGang(name, source, settings, tuple(reader.bad), deprecated)


def parse_pod_group_settings(
    key: str,
    min_member: int,
    schedule_timeout_seconds: int | None,
    annotations: Texts,
    defaults: GangDefaults = UPSTREAM_DEFAULTS,
) -> tuple[GangSettings, tuple[BadSetting, ...]]:
    """Read the settings of a PodGroup: ``key`` is its ``namespace/name``."""
    reader = _Reader(key, annotations, defaults)
    wait_seconds = resolve_wait_seconds(schedule_timeout_seconds, defaults)
    return reader.settings(min_member, wait_seconds), tuple(reader.bad)


def encode_bind_record(group_id: str, member_count: int) -> dict[str, str]:
    """Write what a member is bound with; older readers look under the deprecated keys."""
    count = str(member_count)
    return {
        keys.BIND_GROUP_ID: group_id,
        keys.BIND_MEMBER_COUNT: count,
        keys.BIND_GROUP_ID_DEPRECATED: group_id,
        keys.BIND_MEMBER_COUNT_DEPRECATED: count,
    }


def _parse_kueue(
    namespace: str, labels: Texts, annotations: Texts, defaults: GangDefaults
) -> PodGang | None:
    """Read a group of plain pods as Kueue knows it: all of them are needed."""
    group = labels.get(kubernetes.KUEUE_NAME)
    if not group:
        return None
    name = make_foreign_name(kubernetes.KUEUE, group)
    total = _parse_min(kubernetes.KUEUE_TOTAL, annotations.get(kubernetes.KUEUE_TOTAL, ""))
    if isinstance(total, BadSetting):
        return PodGang(name, NameSource.KUEUE, None, (total,))
    settings = _Reader(f"{namespace}/{name}", {}, defaults).settings(total, defaults.wait_seconds)
    return PodGang(name, NameSource.KUEUE, settings)


def _find_name_problem(name: str) -> str:
    if len(name) > MAX_NAME:
        return f"is longer than {MAX_NAME} characters"
    if GROUP_SEPARATOR in name:
        return "has a comma, which separates the gangs of a group"
    return ""


class _Reader:
    """Reads the annotations that pods and PodGroups share, and collects what is wrong."""

    def __init__(self, key: str, annotations: Texts, defaults: GangDefaults) -> None:
        self._key = key
        self._annotations = annotations
        self._defaults = defaults
        self.bad: list[BadSetting] = []

    def settings(self, min_member: int, wait_seconds: int) -> GangSettings:
        match_policy = self._match_policy()
        return GangSettings(
            min_member=min_member,
            total=self._total(min_member),
            wait_seconds=wait_seconds,
            mode=self._choice(keys.MODE, MODES, MODES[0]),
            match_policy=match_policy,
            groups=self._groups(),
            topology=self._topology(),
            topology_name=self._annotations.get(operators.TOPOLOGY, ""),
            on_member_failure=self._choice(
                operators.ON_MEMBER_FAILURE, ON_MEMBER_FAILURE, _when_a_member_fails(match_policy)
            ),
            on_bind_failure=self._choice(
                operators.ON_BIND_FAILURE, ON_BIND_FAILURE, ON_BIND_FAILURE[0]
            ),
            sub_groups=self._sub_groups(),
        )

    def wait_seconds(self) -> int:
        default = self._defaults.wait_seconds
        text = self._annotations.get(keys.WAITING_TIME, "")
        if not text:
            return default
        seconds = parse_duration_seconds(text)
        if seconds is None:
            self._report(keys.WAITING_TIME, text, "is not a duration like 30s or 5m", f"{default}s")
        elif seconds <= 0:
            self._report(keys.WAITING_TIME, text, "must be longer than 0", f"{default}s")
        return seconds if seconds and seconds > 0 else default

    def _total(self, min_member: int) -> int:
        text = self._annotations.get(keys.TOTAL_NUMBER, "")
        if not text:
            return min_member
        total = _parse_integer(text)
        if total is not None and total >= max(min_member, 1):
            return total
        problem = f"must be a whole number, {max(min_member, 1)} or more"
        self._report(keys.TOTAL_NUMBER, text, problem, str(min_member))
        return min_member

    def _match_policy(self) -> str:
        key = keys.MATCH_POLICY
        if not self._annotations.get(key):
            key = keys.MATCH_POLICY_ALIAS
        return self._choice(key, MATCH_POLICIES, self._defaults.match_policy)

    def _choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        text = self._annotations.get(key, "")
        if not text or text in choices:
            return text or default
        self._report(key, text, f"must be {' or '.join(choices)}", default)
        return default

    def _groups(self) -> tuple[str, ...]:
        groups = parse_groups(self._annotations.get(keys.GROUPS, ""))
        if isinstance(groups, BadSetting):
            self._report(keys.GROUPS, groups.value, groups.problem, f'["{self._key}"]')
            groups = None
        if not groups:
            return (self._key,)
        listed = tuple(sorted(set(groups)))
        if wrong := next((gang for gang in listed if not _GANG_KEY.fullmatch(gang)), None):
            # The list stays in force: to start without a gang that somebody meant would be worse.
            problem = f'lists "{cut(wrong)}", which is not of the form namespace/name'
            self._report(keys.GROUPS, self._annotations[keys.GROUPS], problem, "the list as it is")
        return listed

    def _topology(self) -> NetworkTopologySpec | None:
        return self._read(NETWORK_TOPOLOGY_SPEC)

    def _sub_groups(self) -> SubGroups | None:
        found = self._read(SUB_GROUPS)
        problem = "" if found is None else _find_fault(found)
        if problem:
            self._report(
                operators.SUB_GROUPS, self._annotations[operators.SUB_GROUPS], problem, "none"
            )
            return None
        if found is not None and (excess := _find_excess(found)):
            problem, all_of_them = excess
            self._report(
                operators.SUB_GROUPS, self._annotations[operators.SUB_GROUPS], problem, all_of_them
            )
        return found

    def _read(self, annotation: JsonAnnotation[T]) -> T | None:
        found = annotation.read(self._annotations)
        if not isinstance(found, InvalidObject):
            return found
        text, first = self._annotations[annotation.key], found.problems[0]
        within = first.field.partition("]")[2].removeprefix(".")
        problem = f"{within}: {first.message}" if within else first.message
        self._report(annotation.key, text, problem, "none")
        return None

    def _report(self, key: str, value: str, problem: str, in_force: str) -> None:
        self.bad.append(BadSetting(key, cut(value), problem, in_force))


def _find_fault(found: SubGroups) -> str:
    """Say why sub-groups form no tree below their gang; nothing if they do."""
    names = [one.name for one in found.groups]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        return f'names "{twice}" twice'
    if stray := next((one.parent for one in found.groups if one.parent not in {"", *names}), ""):
        return f'names "{stray}" as a parent, and has no such sub-group'
    reached = {""}
    for _ in range(MAX_LEVELS):
        reached |= {one.name for one in found.groups if one.parent in reached}
    stray = next((name for name in names if name not in reached), "")
    problem = f"has more than {MAX_LEVELS} parents above it, or they lead in a circle"
    return f'"{stray}" {problem}' if stray else ""


def _find_excess(found: SubGroups) -> tuple[str, str] | None:
    """Say who asks for more complete sub-groups than are right below, and how many those are."""
    below = Counter(one.parent for one in found.groups)
    asked = {"": found.min_sub_groups, **{one.name: one.min_sub_groups for one in found.groups}}
    for name, count in asked.items():
        if count is not None and count > below[name]:
            asker = f'"{name}"' if name else "the gang"
            problem = f"{asker} asks for {count} complete sub-groups, and right below are fewer"
            return problem, str(below[name])
    return None


def _when_a_member_fails(match_policy: str) -> str:
    """Return what is in force if nothing is written: who waits for all waits in vain for one."""
    return "RestartGang" if match_policy == "only-waiting" else "Replace"


def cut(text: str) -> str:
    """Shorten a value for a message."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _is_text(value: object) -> bool:
    """Whether a JSON value is a text that can be written again: JSON can hold half a character."""
    return isinstance(value, str) and not _LONE_SURROGATE.search(value)


def _parse_integer(text: str) -> int | None:
    """Read a whole number of 32 bits, as upstream does."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if abs(number) <= MAX_INTEGER else None


def _parse_min(key: str, text: str) -> int | BadSetting:
    minimum = _parse_integer(text)
    if minimum is not None and minimum >= 0:
        return minimum
    problem = "must be a whole number, not negative" if text else "is missing"
    return BadSetting(key, cut(text), problem, "none, so the gang cannot start")


def _bad_groups(text: str, problem: str) -> BadSetting:
    return BadSetting(keys.GROUPS, cut(text), problem, "none")


def parse_topology_index(text: str | None) -> int:
    """Return the rank that a member is given by ``network-topology-index``; -1 if none, or bad."""
    index = _parse_integer(text) if text else None
    return index if index is not None and index >= 0 else -1
