"""Gangs: from labels and annotations to settings, and the annotations written at the bind.

Every reader takes plain mappings and never raises: an invalid value becomes a `BadSetting`, and
Koordinator's default is used. Knows no pod, no PodGroup, and no rule that uses the settings.
"""

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
from koord.api.json_text import load_json
from koord.api.keys import gang as keys
from koord.api.keys import operators
from koord.api.parse import InvalidObject, JsonAnnotation
from koord.api.quantity import parse_duration_seconds
from koord.api.run_terms import ANNOTATIONS as RUN_ANNOTATIONS
from koord.api.run_terms import NO_SETTINGS, RunSettings, parse_run_settings

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
KEPT_ROOM: Final = ("Keep", "GiveUp")
QUEUE_HOLD: Final = ("false", "true")
MOST_PRIORITY: Final = 1_000_000_000
"""That of the highest PriorityClass that users may make."""
MOST_RETRY: Final = 64
"""Characters that count of what is written to have something tried again."""
MAX_INTEGER: Final = 2**31 - 1
MAX_LEVELS: Final = 8
"""Limit of the depth of sub-groups."""
MAX_NAME: Final = 253
"""No object of Kubernetes has a longer name; gangs with one cannot start."""
MAX_GROUPS_TEXT: Final = 32 * 1024
"""Limit of lists of gangs: the group is recorded on every member, several times."""
GROUP_SEPARATOR: Final = ","
"""Separates the gangs in the identity of a group, so names must not contain it."""
MAX_SHOWN: Final = 80
"""Limit of values that are quoted in messages."""

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
    """An invalid setting: its value (cut), what is wrong, and what is used instead."""

    key: str
    value: str
    problem: str
    in_force: str


@dataclass(frozen=True, slots=True)
class GangDefaults:
    """The settings that are used if nothing valid is written."""

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
    kept_room: str = "Keep"
    queue_hold: str = "false"
    queue_priority: int | None = None
    queue_retry: str = ""
    run: RunSettings = NO_SETTINGS


@dataclass(frozen=True, slots=True)
class PodGang:
    """The gang of a pod by its labels and annotations.

    ``settings`` is None if the PodGroup label names the gang (the object carries the settings, the
    pod's own annotations do not count) or if the pod has no valid minimum.
    """

    name: str
    source: NameSource
    settings: GangSettings | None = None
    bad: tuple[BadSetting, ...] = ()
    deprecated: tuple[tuple[str, str], ...] = ()
    """Deprecated keys in use, each with the one to use instead."""


UPSTREAM_DEFAULTS: Final = GangDefaults()
NO_INDEX: Final = -1
"""The network topology index of a member that has none."""

# The labels and annotations of a pod that determine its gang and the settings.
GANG_LABELS: Final = (
    keys.POD_GROUP,
    keys.LEGACY_NAME,
    keys.LEGACY_MIN_AVAILABLE,
    keys.KUEUE_NAME,
)
GANG_ANNOTATIONS: Final = (
    keys.NAME,
    keys.MIN_AVAILABLE,
    keys.TOTAL_NUMBER,
    keys.WAITING_TIME,
    keys.MODE,
    keys.MATCH_POLICY,
    keys.MATCH_POLICY_ALIAS,
    keys.GROUPS,
    keys.NETWORK_TOPOLOGY_SPEC,
    operators.TOPOLOGY,
    operators.ON_MEMBER_FAILURE,
    operators.ON_BIND_FAILURE,
    operators.KEPT_ROOM,
    operators.QUEUE_HOLD,
    operators.QUEUE_PRIORITY,
    operators.QUEUE_RETRY,
    operators.SUB_GROUPS,
    keys.KUEUE_TOTAL,
    keys.KUEUE_FAST,
    *RUN_ANNOTATIONS,
)


def find_kueue_group(labels: Texts, annotations: Texts) -> str:
    """Return the group of plain pods of Kueue that is a gang; empty for none.

    One that is admitted with its first pod is none: the pods of a StatefulSet, which are made one
    after the other, would wait for each other.
    """
    is_fast = annotations.get(keys.KUEUE_FAST) == "true"
    return "" if is_fast else labels.get(keys.KUEUE_NAME, "")


def parse_gang_name(labels: Texts, annotations: Texts) -> tuple[str, NameSource] | None:
    """Return the name of a pod's gang and its source; the first that is not empty wins."""
    if name := labels.get(keys.POD_GROUP):
        return name, NameSource.POD_GROUP_LABEL
    if name := labels.get(keys.LEGACY_NAME):
        return name, NameSource.LEGACY_LABEL
    if name := annotations.get(keys.NAME):
        return name, NameSource.ANNOTATION
    return None


def make_foreign_name(group: str, name: str) -> str:
    """Return the name of a gang declared by another API; no other gang has such a name."""
    return f"{group}:{name}"


def parse_min_available(labels: Texts, annotations: Texts) -> int | BadSetting:
    """Return the minimum of a gang without PodGroup.

    A legacy label that is no number is an error; it does not fall through to the annotation.
    """
    if text := labels.get(keys.LEGACY_MIN_AVAILABLE):
        return _parse_min(keys.LEGACY_MIN_AVAILABLE, text)
    return _parse_min(keys.MIN_AVAILABLE, annotations.get(keys.MIN_AVAILABLE, ""))


def parse_groups(text: str) -> tuple[str, ...] | BadSetting | None:
    """Parse a list of gangs; None if there is none."""
    if not text:
        return None
    if len(text) > MAX_GROUPS_TEXT:
        return _bad_groups(text, f"is longer than {MAX_GROUPS_TEXT} characters")
    try:
        value: Any = load_json(text)
    except (ValueError, RecursionError):
        return _bad_groups(text, 'is not a JSON list like ["ns/gang-a","ns/gang-b"]')
    if value is None:
        return None
    if not isinstance(value, list) or not all(map(_is_text, value)):
        return _bad_groups(text, 'must be a JSON list of texts like ["ns/gang-a","ns/gang-b"]')
    return tuple(value)


def resolve_wait_seconds(seconds: int | None, defaults: GangDefaults = UPSTREAM_DEFAULTS) -> int:
    """Return the wait time of a PodGroup: None, 0 or less mean the default."""
    return seconds if seconds is not None and seconds > 0 else defaults.wait_seconds


def parse_pod_gang(
    namespace: str,
    labels: Texts,
    annotations: Texts,
    defaults: GangDefaults = UPSTREAM_DEFAULTS,
    native: str = "",
) -> PodGang | None:
    """Parse the gang of a pod; None for a pod without one.

    ``native`` is the native PodGroup of Kubernetes that it names. Koordinator's keys take
    precedence over it, and it over the label of Kueue.
    """
    named = parse_gang_name(labels, annotations)
    if named is None and native:
        return PodGang(make_foreign_name(keys.NATIVE_GROUP, native), NameSource.NATIVE)
    if named is None:
        return _parse_kueue(namespace, labels, annotations, defaults)
    name, source = named
    if source is NameSource.POD_GROUP_LABEL:
        return PodGang(name, source)
    if problem := _find_name_problem(name):
        bad = BadSetting(keys.NAME, cut(name), problem, "none, so the gang cannot start")
        return PodGang(f"{name[:MAX_NAME].replace(GROUP_SEPARATOR, '…')}…", source, None, (bad,))
    reader = _AnnotationReader(f"{namespace}/{name}", annotations, defaults)
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
    """Parse the settings of a PodGroup; ``key`` is its ``namespace/name``."""
    reader = _AnnotationReader(key, annotations, defaults)
    wait_seconds = resolve_wait_seconds(schedule_timeout_seconds, defaults)
    return reader.settings(min_member, wait_seconds), tuple(reader.bad)


def parse_native_settings(
    key: str, min_count: int, annotations: Texts, defaults: GangDefaults = UPSTREAM_DEFAULTS
) -> tuple[GangSettings, tuple[BadSetting, ...]]:
    """Parse the settings of a native PodGroup of Kubernetes; its wait time is an annotation."""
    reader = _AnnotationReader(key, annotations, defaults)
    settings = reader.settings(min_count, reader.wait_seconds())
    return settings, tuple(reader.bad)


def encode_bind_record(group_id: str, member_count: int) -> dict[str, str]:
    """Return the annotations of a bound member, under the deprecated keys as well."""
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
    """Parse a group of plain pods of Kueue, which needs all of its pods."""
    group = find_kueue_group(labels, annotations)
    if not group:
        return None
    name = make_foreign_name(keys.KUEUE, group)
    total = _parse_min(keys.KUEUE_TOTAL, annotations.get(keys.KUEUE_TOTAL, ""))
    if isinstance(total, BadSetting):
        return PodGang(name, NameSource.KUEUE, None, (total,))
    settings = _AnnotationReader(f"{namespace}/{name}", {}, defaults).settings(
        total, defaults.wait_seconds
    )
    return PodGang(name, NameSource.KUEUE, settings)


def _find_name_problem(name: str) -> str:
    if len(name) > MAX_NAME:
        return f"is longer than {MAX_NAME} characters"
    if GROUP_SEPARATOR in name:
        return "has a comma, which separates the gangs of a group"
    return ""


class _AnnotationReader:
    """Parses the annotations that pods and PodGroups share, and collects invalid values."""

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
            topology=self._read(NETWORK_TOPOLOGY_SPEC),
            topology_name=self._annotations.get(operators.TOPOLOGY, ""),
            on_member_failure=self._choice(
                operators.ON_MEMBER_FAILURE,
                ON_MEMBER_FAILURE,
                _default_on_member_failure(match_policy),
            ),
            on_bind_failure=self._choice(
                operators.ON_BIND_FAILURE, ON_BIND_FAILURE, ON_BIND_FAILURE[0]
            ),
            sub_groups=self._sub_groups(),
            kept_room=self._choice(operators.KEPT_ROOM, KEPT_ROOM, KEPT_ROOM[0]),
            queue_hold=self._choice(operators.QUEUE_HOLD, QUEUE_HOLD, QUEUE_HOLD[0]),
            queue_priority=self._priority(),
            queue_retry=self._annotations.get(operators.QUEUE_RETRY, "")[:MOST_RETRY],
            run=parse_run_settings(self._annotations, self._report),
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

    def _priority(self) -> int | None:
        key = operators.QUEUE_PRIORITY
        text = self._annotations.get(key, "")
        if not text:
            return None
        priority = _parse_integer(text)
        if priority is None or abs(priority) > MOST_PRIORITY:
            problem = f"must be a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}"
            self._report(key, text, problem, "the priority of its pods")
            return None
        return priority

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
            # The list is used as it is: starting without a gang that was meant would be worse.
            problem = f'lists "{cut(wrong)}", which is not of the form namespace/name'
            self._report(keys.GROUPS, self._annotations[keys.GROUPS], problem, "the list as it is")
        return listed

    def _sub_groups(self) -> SubGroups | None:
        sub_groups = self._read(SUB_GROUPS)
        if sub_groups is None:
            return None
        key, text = operators.SUB_GROUPS, self._annotations[operators.SUB_GROUPS]
        if problem := _find_tree_problem(sub_groups):
            self._report(key, text, problem, "none")
            return None
        if excess := _find_missing_sub_groups(sub_groups):
            self._report(key, text, *excess)
        return sub_groups

    def _read(self, annotation: JsonAnnotation[T]) -> T | None:
        value = annotation.read(self._annotations)
        if not isinstance(value, InvalidObject):
            return value
        text, first = self._annotations[annotation.key], value.problems[0]
        within = first.field.partition("]")[2].removeprefix(".")
        problem = f"{within}: {first.message}" if within else first.message
        self._report(annotation.key, text, problem, "none")
        return None

    def _report(self, key: str, value: str, problem: str, in_force: str) -> None:
        self.bad.append(BadSetting(key, cut(value), problem, in_force))


def _find_tree_problem(sub_groups: SubGroups) -> str:
    """Return why sub-groups are not a tree below their gang; empty if they are."""
    names = [group.name for group in sub_groups.groups]
    if twice := next((name for name, count in Counter(names).items() if count > 1), ""):
        return f'names "{twice}" twice'
    all_names = {"", *names}
    if stray := next(
        (group.parent for group in sub_groups.groups if group.parent not in all_names), ""
    ):
        return f'names "{stray}" as a parent, and has no such sub-group'
    reached = {""}
    for _ in range(MAX_LEVELS):
        reached |= {group.name for group in sub_groups.groups if group.parent in reached}
    stray = next((name for name in names if name not in reached), "")
    problem = f"has more than {MAX_LEVELS} parents above it, or they lead in a circle"
    return f'"{stray}" {problem}' if stray else ""


def _find_missing_sub_groups(sub_groups: SubGroups) -> tuple[str, str] | None:
    """Return which sub-group needs more complete ones than it has, and how many it has."""
    below = Counter(group.parent for group in sub_groups.groups)
    minimums = {"": sub_groups.min_sub_groups} | {
        group.name: group.min_sub_groups for group in sub_groups.groups
    }
    for name, count in minimums.items():
        if count is not None and count > below[name]:
            group = f'"{name}"' if name else "the gang"
            problem = f"{group} needs {count} complete sub-groups, and has fewer"
            return problem, str(below[name])
    return None


def _default_on_member_failure(match_policy: str) -> str:
    """Return the default: under only-waiting, a single replacement could never start."""
    return "RestartGang" if match_policy == "only-waiting" else "Replace"


def cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _is_text(value: object) -> bool:
    """Whether a JSON value is a text that can be encoded: JSON allows lone surrogates."""
    return isinstance(value, str) and not _LONE_SURROGATE.search(value)


def _parse_integer(text: str) -> int | None:
    """Parse a whole number of 32 bits, as Koordinator does."""
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


def parse_topology_index(text: str | None) -> int | BadSetting:
    """Return the index of a member; ``NO_INDEX`` if it has none."""
    if not text:
        return NO_INDEX
    index = _parse_integer(text)
    if index is not None and index >= 0:
        return index
    problem = "must be a whole number, not negative"
    return BadSetting(keys.NETWORK_TOPOLOGY_INDEX, cut(text), problem, "none")
