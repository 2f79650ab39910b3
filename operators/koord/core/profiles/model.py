"""What a profile is, and what it does to a pod: a list of steps.

The steps are the one description of a profile. The policies are made of them, and so is what
``koord lint`` shows; neither reads the fields of a profile itself. Everything here has been
validated: syntax of keys and values, and the parts of ``patch``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from koord.core.model.koordinator_class import (
    PRIORITY_CLASS_LABEL,
    QOS_LABEL,
    SUB_PRIORITY_LABEL,
    KoordinatorQos,
    find_class_by_priority,
)
from koord.core.model.selectors import Requirement

Texts: TypeAlias = tuple[tuple[str, str], ...]
"""Keys and values, in the order in which they are written."""
ALWAYS: Final = 100
MAX_LABEL: Final = 63
LABEL_VALUE: Final = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
"""The pattern of values of labels."""


class TextMap(StrEnum):
    """The maps of texts in a pod that profiles write, as JSON pointers."""

    LABELS = "/metadata/labels"
    ANNOTATIONS = "/metadata/annotations"
    NODE_SELECTOR = "/spec/nodeSelector"


@dataclass(frozen=True, slots=True)
class PutText:
    """Write a text."""

    where: TextMap
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class CopyText:
    """Write the text of another key of the same map, if that is there."""

    where: TextMap
    key: str
    source: str


@dataclass(frozen=True, slots=True)
class AppendText:
    """Append to a text that is there, if the whole is the value of a label."""

    where: TextMap
    key: str
    suffix: str


@dataclass(frozen=True, slots=True)
class ReplaceText:
    """Write a text over another one, if there is one."""

    where: TextMap
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class PutField:
    """Write a field below ``spec``, whole; ``path`` is the names down to it."""

    path: tuple[str, ...]
    value: Any = field(hash=False)
    """As JSON."""


Step: TypeAlias = PutText | CopyText | AppendText | ReplaceText | PutField


@dataclass(frozen=True, slots=True)
class ClassValue:
    """What a PriorityClass stands for."""

    value: int
    never_preempts: bool = False

    @property
    def preemption_policy(self) -> str:
        return "Never" if self.never_preempts else "PreemptLowerPriority"


@dataclass(frozen=True, slots=True)
class PodPatch:
    """The part of ``patch`` that is written; maps are merged, lists replaced."""

    labels: Texts = ()
    annotations: Texts = ()
    node_selector: Texts = ()
    fields: tuple[tuple[tuple[str, ...], Any], ...] = field(default=(), hash=False)
    """Path below ``spec`` and value: tolerations, and the lists of affinities."""


@dataclass(frozen=True, slots=True)
class ColocationProfile:
    """A valid profile, or the last valid settings of one."""

    name: str
    uid: str = ""
    generation: int = 0
    selector: tuple[Requirement, ...] = ()
    namespace_selector: tuple[Requirement, ...] = ()
    probability: int = ALWAYS
    """Percent of the pods."""
    is_per_owner: bool = False
    """Whether all pods of an owner have the same lot."""
    labels: Texts = ()
    annotations: Texts = ()
    label_keys: Texts = ()
    """Old key and new key."""
    annotation_keys: Texts = ()
    label_suffixes: Texts = ()
    scheduler_name: str = ""
    qos: KoordinatorQos | None = None
    priority_class: str = ""
    koordinator_priority: int | None = None
    patch: PodPatch = PodPatch()
    skips_resources: bool = False
    """Whether CPU and memory of the pods that it selects stay as they are."""
    left_out: tuple[str, ...] = ()
    """Paths of fields that no policy can write."""
    settings: str = ""
    """The settings in force as JSON, to be kept in the status."""
    is_kept: bool = False
    """Whether these are the last valid settings, as the present ones are invalid."""
    is_invalid: bool = False
    """Whether there are no valid settings at all; nothing else is set then."""

    def steps(self, classes: Mapping[str, ClassValue]) -> tuple[Step, ...]:
        """Return what the profile does, in order. Raises KeyError for an unknown PriorityClass."""
        return tuple(self._list_steps(classes))

    def _list_steps(self, classes: Mapping[str, ClassValue]) -> Iterator[Step]:
        labels, annotations = TextMap.LABELS, TextMap.ANNOTATIONS
        yield from (PutText(labels, key, value) for key, value in self.labels)
        yield from (PutText(annotations, key, value) for key, value in self.annotations)
        yield from (CopyText(labels, new, old) for old, new in self.label_keys)
        yield from (CopyText(annotations, new, old) for old, new in self.annotation_keys)
        yield from (AppendText(labels, key, suffix) for key, suffix in self.label_suffixes)
        if self.scheduler_name:
            yield PutField(("schedulerName",), self.scheduler_name)
        if self.qos is not None:
            yield PutText(labels, QOS_LABEL, str(self.qos))
        if self.priority_class:
            class_value = classes[self.priority_class]
            yield PutField(("priorityClassName",), self.priority_class)
            yield PutField(("priority",), class_value.value)
            yield PutField(("preemptionPolicy",), class_value.preemption_policy)
            band = find_class_by_priority(class_value.value)
            if band is not None and not self._says_class:
                # Whoever creates a pod may not say that it is of another class.
                yield ReplaceText(labels, PRIORITY_CLASS_LABEL, str(band))
        if self.koordinator_priority is not None:
            yield PutText(labels, SUB_PRIORITY_LABEL, str(self.koordinator_priority))
        yield from (PutText(labels, key, value) for key, value in self.patch.labels)
        yield from (PutText(annotations, key, value) for key, value in self.patch.annotations)
        yield from (
            PutText(TextMap.NODE_SELECTOR, key, value) for key, value in self.patch.node_selector
        )
        yield from (PutField(path, value) for path, value in self.patch.fields)

    @property
    def _says_class(self) -> bool:
        """Whether it writes the label of the class by itself."""
        keys = (*self.labels, *self.label_suffixes, *self.patch.labels)
        written = {*(key for key, _ in keys), *(new for _, new in self.label_keys)}
        return PRIORITY_CLASS_LABEL in written

    def find_put(self, key: str) -> str | None:
        """Return the label that a pod has of this key after the profile, if that is known."""
        value = None
        for step in self._list_steps(_AnyClass()):
            if isinstance(step, PutField) or (step.where, step.key) != (TextMap.LABELS, key):
                continue
            value = step.value if isinstance(step, PutText) else None
        return value

    def find_class(self, classes: Mapping[str, ClassValue]) -> str | None:
        """Return the name of the class that a pod has after the profile; None if it is not known.

        Empty for a PriorityClass whose value is in no range. Raises KeyError for an unknown one.
        """
        if self._says_class:
            return self.find_put(PRIORITY_CLASS_LABEL)
        if not self.priority_class:
            return None
        return str(find_class_by_priority(classes[self.priority_class].value) or "")

    @property
    def written_texts(self) -> frozenset[tuple[TextMap, str]]:
        """Keys of texts that it may write."""
        return frozenset(
            (step.where, step.key)
            for step in self._list_steps(_AnyClass())
            if not isinstance(step, PutField)
        )

    @property
    def copied_texts(self) -> frozenset[tuple[TextMap, str]]:
        """Keys of texts that it may copy."""
        return frozenset(
            (step.where, step.source)
            for step in self._list_steps(_AnyClass())
            if isinstance(step, CopyText)
        )

    @property
    def written_labels(self) -> frozenset[str]:
        """Keys of labels that it may write."""
        return frozenset(key for where, key in self.written_texts if where is TextMap.LABELS)

    @property
    def writes_fields(self) -> bool:
        """Whether it writes anything by itself."""
        return any(True for _ in self._list_steps(_AnyClass()))


class _AnyClass(dict[str, ClassValue]):
    """Stands for PriorityClasses where their values do not matter."""

    def __missing__(self, key: str) -> ClassValue:
        return ClassValue(0)
