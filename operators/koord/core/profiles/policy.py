"""Makes one MutatingAdmissionPolicy of the profiles of a group.

The policy has one mutation, so every condition is about the pod as it was created, whatever the
profiles before have written. What a later profile reads of an earlier one (a label that is copied,
the class of the pod) is followed by variables, one for each version of a text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from koord.core.model.koordinator_class import PRIORITY_CLASS_LABEL, QOS_LABEL
from koord.core.model.selectors import Requirement, SelectorOperator
from koord.core.profiles.cel import (
    FALSE,
    TRUE,
    escape_pointer,
    join_all,
    join_any,
    write_json,
    write_patch,
    write_selector,
    write_text,
)
from koord.core.profiles.model import (
    ALWAYS,
    LABEL_VALUE,
    MAX_LABEL,
    AppendText,
    ClassValue,
    ColocationProfile,
    CopyText,
    PutField,
    PutText,
    ReplaceText,
    Step,
    TextMap,
)
from koord.core.profiles.overlap import feeds
from koord.core.profiles.translation import (
    AGENT_TEXT,
    list_operations,
    write_tier,
    write_variables,
)

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_LABELS: Final = "variables.labels"
_ANNOTATIONS: Final = "variables.annotations"
_NAMESPACE_LABELS: Final = "variables.namespaceLabels"
_MAPS: Final[Mapping[TextMap, str]] = {
    TextMap.LABELS: "object.metadata.labels",
    TextMap.ANNOTATIONS: "object.metadata.annotations",
    TextMap.NODE_SELECTOR: "object.spec.nodeSelector",
}
_VARIABLES: Final[Mapping[TextMap, str]] = {
    TextMap.LABELS: _LABELS,
    TextMap.ANNOTATIONS: _ANNOTATIONS,
}
_PRIORITY: Final = ("priority",)
_CLASSES: Final = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
_OF_CLASS: Final[Mapping[tuple[str, ...], str]] = {
    _PRIORITY: "int(params.value)",
    ("preemptionPolicy",): (
        'has(params.preemptionPolicy) ? params.preemptionPolicy : "PreemptLowerPriority"'
    ),
}
"""Fields that are taken from the PriorityClass as it is when a pod is created."""
_OF_PODS: Final = {
    "namespaceLabels": (
        "has(namespaceObject.metadata.labels) ? namespaceObject.metadata.labels : {}"
    ),
    "priority": "has(object.spec.priority) ? int(object.spec.priority) : 0",
}
"""Variables that other objects than pods do not have."""
_NOT_BY_A_NODE: Final = {
    "name": "not-by-a-node",
    "expression": '!("system:nodes" in request.userInfo.groups)',
}
"""A kubelet creates pods only to show what it runs from files of its node, by those files."""
_LOT_DIGITS: Final = 4
_LOTS: Final = 16**_LOT_DIGITS


def make_policy_spec(
    group: Sequence[ColocationProfile],
    classes: Mapping[str, ClassValue],
    excluded: Sequence[str],
    *,
    without: str = "",
) -> dict[str, Any]:
    """Return the ``spec`` of the policy of a group; ``excluded`` are namespaces without any.

    ``without`` a PriorityClass the policy is that of the other profiles, for pods on which the
    policy of all has not been applied.
    """
    is_parametrised = not without and bool(find_parameter(group))
    writer = _PolicyWriter(group, classes, is_parametrised=is_parametrised, without=without)
    expression = writer.write()
    alone = group[0] if len(group) == 1 else None
    return {
        **({"paramKind": _CLASSES} if writer.is_parametrised else {}),
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded" if _is_repeatable(group) else "Never",
        "matchConstraints": {
            "objectSelector": _make_selector(alone.selector if alone else ()),
            "namespaceSelector": _make_selector(
                (
                    *(alone.namespace_selector if alone else ()),
                    Requirement(NAMESPACE_NAME, SelectorOperator.NOT_IN, tuple(excluded)),
                )
            ),
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                    "scope": "Namespaced",
                }
            ],
        },
        "matchConditions": [_NOT_BY_A_NODE],
        "variables": [
            {"name": name, "expression": text} for name, text in writer.variables.items()
        ],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }


def find_metadata_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return what a profile does to reservations: to labels and annotations.

    The class of a reservation is that of its template, which no profile writes.
    """
    return tuple(
        step
        for step in steps
        if not isinstance(step, PutField | ReplaceText) and step.where is not TextMap.NODE_SELECTOR
    )


def make_reservation_policy_spec(
    group: Sequence[ColocationProfile], classes: Mapping[str, ClassValue]
) -> dict[str, Any] | None:
    """Return the ``spec`` of the policy of a group for reservations; None if it does nothing.

    They have no namespace: profiles for certain namespaces are not for them.
    """
    members = [profile for profile in group if not profile.namespace_selector]
    if not any(
        profile.probability >= ALWAYS and find_metadata_steps(profile.steps(classes))
        for profile in members
    ):
        return None
    writer = _PolicyWriter(members, classes, is_for_pods=False)
    expression = writer.write()
    rule = {
        "apiGroups": ["scheduling.koordinator.sh"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE"],
        "resources": ["reservations"],
        "scope": "Cluster",
    }
    return {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded" if _is_repeatable(members) else "Never",
        "matchConstraints": {
            "objectSelector": {},
            "namespaceSelector": {},
            "resourceRules": [rule],
        },
        "variables": [
            {"name": name, "expression": text} for name, text in writer.variables.items()
        ],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }


def find_parameter(group: Sequence[ColocationProfile]) -> str:
    """Return the PriorityClass that a policy is bound to; empty if there is none, or several.

    The API server does not apply a policy whose class is not there, so no pod is refused between
    the deletion of the class and that of the policy.
    """
    names = {profile.priority_class for profile in group if profile.probability > 0} - {""}
    return names.pop() if len(names) == 1 else ""


def can_stand_in(group: Sequence[ColocationProfile]) -> bool:
    """Whether the profiles without the PriorityClass of a policy can have one of their own.

    Policies are applied in no certain order, so it has to be the same to be called twice.
    """
    classless = [profile for profile in group if not profile.priority_class]
    is_needed = bool(find_parameter(group)) and any(of.probability > 0 for of in classless)
    return is_needed and _is_repeatable(group)


def _is_repeatable(group: Sequence[ColocationProfile]) -> bool:
    """Whether it is the same to be called again for a pod that others have changed meanwhile."""
    texts = {text for profile in group for text in profile.written_texts}
    copied = {text for profile in group for text in profile.copied_texts}
    if any(profile.label_suffixes for profile in group) or not texts.isdisjoint(copied):
        return False
    return not any(feeds(writer, reader) for writer in group for reader in group)


def _make_selector(selector: Sequence[Requirement]) -> dict[str, Any]:
    expressions = [
        {
            "key": requirement.key,
            "operator": str(requirement.operator),
            **({"values": list(requirement.values)} if requirement.values else {}),
        }
        for requirement in selector
    ]
    return {"matchExpressions": expressions} if expressions else {}


@dataclass(slots=True)
class _PolicyWriter:
    """Collects variables and operations of one policy, profile by profile."""

    group: Sequence[ColocationProfile]
    classes: Mapping[str, ClassValue]
    is_parametrised: bool = False
    """Whether values are those of the class that the policy is bound to."""
    without: str = ""
    """A PriorityClass whose profiles write nothing: another policy is theirs."""
    is_for_pods: bool = True
    """Otherwise for reservations: only labels and annotations are written."""
    variables: dict[str, str] = field(default_factory=dict)
    _texts: dict[tuple[TextMap, str], str] = field(default_factory=dict)
    """Key that somebody reads -> the list with its text at this point, empty without one."""
    _priority: str = "variables.priority"
    _operations: list[str] = field(default_factory=list)

    def write(self) -> str:
        """Return the expression of the mutation."""
        steps = [self._steps_of(profile) if self._writes(profile) else () for profile in self.group]
        self._declare(steps)
        self._add_parents(steps)
        for number, made in enumerate(steps):
            for part in _split(made):
                self._apply(number, part)
        if self.is_for_pods:
            self._translate()
        listed = ",\n".join(self._operations)
        return f"[\n{listed}\n].flatten()"

    def _steps_of(self, profile: ColocationProfile) -> tuple[Step, ...]:
        steps = profile.steps(self.classes)
        return steps if self.is_for_pods else find_metadata_steps(steps)

    def _writes(self, profile: ColocationProfile) -> bool:
        return profile.probability > 0 and not self._is_left_out(profile)

    def _is_left_out(self, profile: ColocationProfile) -> bool:
        return bool(self.without) and profile.priority_class == self.without

    # --- what is read ---------------------------------------------------------------------------

    def _declare(self, steps: Sequence[Sequence[Step]]) -> None:
        labels, annotations = _MAPS[TextMap.LABELS], _MAPS[TextMap.ANNOTATIONS]
        self.variables |= {
            "labels": f"has({labels}) ? {labels} : {{}}",
            "annotations": f"has({annotations}) ? {annotations} : {{}}",
        }
        if self.is_for_pods:
            self.variables |= _OF_PODS
        self._declare_matches()
        read = {(TextMap.LABELS, PRIORITY_CLASS_LABEL), (TextMap.LABELS, QOS_LABEL)}
        for made in steps:
            for step in made:
                if isinstance(step, CopyText):
                    read.add((step.where, step.source))
                elif isinstance(step, AppendText | ReplaceText):
                    read.add((step.where, step.key))
        for where, key in sorted(read):
            texts, literal = _VARIABLES[where], write_text(key)
            self._set_text(where, key, f"{literal} in {texts} ? [{texts}[{literal}]] : []")

    def _declare_matches(self) -> None:
        numbered = sorted(
            enumerate(self.group), key=lambda numbered: not self._is_left_out(numbered[1])
        )
        theirs = [number for number, profile in numbered if self._is_left_out(profile)]
        for number, profile in numbered:
            self.variables[f"selected{number}"] = self._write_selected(profile)
            conditions = [_is_selected(number), write_lot(profile)]
            if theirs and number not in theirs:
                conditions.append("!variables.isWritten")
            self.variables[f"match{number}"] = join_all(conditions)
            if theirs and number == theirs[-1]:
                # Their class on a pod that they select: the policy of all has been applied.
                has_class = f"object.spec.priorityClassName == {write_text(self.without)}"
                self.variables["isWritten"] = (
                    f"({join_any(map(_is_match, theirs))}) "
                    f"&& has(object.spec.priorityClassName) && {has_class}"
                )

    def _write_selected(self, profile: ColocationProfile) -> str:
        if len(self.group) == 1 and self.is_for_pods:
            return TRUE  # the constraints of the policy say so
        return join_all(
            (
                write_selector(profile.selector, _LABELS),
                write_selector(profile.namespace_selector, _NAMESPACE_LABELS)
                if self.is_for_pods
                else TRUE,
            )
        )

    def _set_text(self, where: TextMap, key: str, expression: str) -> None:
        name = f"text{sum(name.startswith('text') for name in self.variables)}"
        self.variables[name] = expression
        self._texts[where, key] = f"variables.{name}"

    # --- what is written ------------------------------------------------------------------------

    def _add_parents(self, steps: Sequence[Sequence[Step]]) -> None:
        """Add the maps that are missing and that somebody writes into."""
        parents: dict[str, tuple[str, list[str]]] = {}
        for number, made in enumerate(steps):
            for step in made:
                for path, absent in _list_parents(step):
                    parents.setdefault(path, (absent, []))[1].append(_is_match(number))
        if self.is_for_pods and any(
            not profile.skips_resources and not self._is_left_out(profile) for profile in self.group
        ):
            absent = _write_absent(TextMap.ANNOTATIONS)
            path = str(TextMap.ANNOTATIONS)
            parents.setdefault(path, (absent, []))[1].append(f'{AGENT_TEXT} != ""')
        for path, (absent, matches) in parents.items():
            needed = join_all((absent, f"({join_any(matches)})"))
            self._add(needed, write_patch("add", write_text(path), "{}"))

    def _add(self, condition: str, *operations: str) -> None:
        listed = f"[{', '.join(operations)}]"
        self._operations.append(f"({condition} ? {listed} : [])")

    def _apply(self, number: int, part: Sequence[Step]) -> None:
        is_match = _is_match(number)
        first = part[0]
        match first:
            case CopyText():
                before = self._texts[first.where, first.source]
                condition = join_all((is_match, f"{before}.size() > 0"))
                self._add(condition, _put(first.where, first.key, f"{before}[0]"))
                self._note(first.where, first.key, condition, before)
            case ReplaceText():
                before = self._texts[first.where, first.key]
                condition = join_all((is_match, f"{before}.size() > 0"))
                text = write_text(first.value)
                self._add(condition, _put(first.where, first.key, text))
                self._note(first.where, first.key, condition, f"[{text}]")
            case AppendText():
                before = self._texts[first.where, first.key]
                whole = f"{before}[0] + {write_text(first.suffix)}"
                fits = f'({whole}).matches("^{LABEL_VALUE}$") && ({whole}).size() <= {MAX_LABEL}'
                condition = join_all((is_match, f"{before}.size() > 0 && {fits}"))
                self._add(condition, _put(first.where, first.key, whole))
                self._note(first.where, first.key, condition, f"[{whole}]")
            case _:
                self._add(is_match, *map(self._write_put, part))
                for step in part:
                    self._note_put(step, is_match)

    def _write_put(self, step: Step) -> str:
        if isinstance(step, PutText):
            return _put(step.where, step.key, write_text(step.value))
        if isinstance(step, PutField):
            path = "".join(f"/{escape_pointer(name)}" for name in ("spec", *step.path))
            return write_patch("add", write_text(path), self._write_value(step))
        raise TypeError(f"has a condition of its own: {step}")

    def _write_value(self, step: PutField) -> str:
        of_class = _OF_CLASS.get(step.path) if self.is_parametrised else None
        return write_json(step.value) if of_class is None else of_class

    def _note_put(self, step: Step, condition: str) -> None:
        if isinstance(step, PutText):
            self._note(step.where, step.key, condition, f"[{write_text(step.value)}]")
        elif isinstance(step, PutField) and step.path == _PRIORITY:
            count = sum(name.startswith("priority") for name in self.variables)
            name = f"priority{count}"
            value = self._write_value(step)
            self.variables[name] = f"{condition} ? {value} : {self._priority}"
            self._priority = f"variables.{name}"

    def _note(self, where: TextMap, key: str, condition: str, text: str) -> None:
        """Follow a text that somebody reads."""
        before = self._texts.get((where, key))
        if before is not None:
            self._set_text(where, key, f"{condition} ? {text} : {before}")

    def _translate(self) -> None:
        """Translate what batch and mid pods ask for, unless a profile that matches says not to."""
        numbers = range(len(self.group))
        left_out = [n for n in numbers if self._is_left_out(self.group[n])]
        spared = [
            _is_selected(n) for n in numbers if self.group[n].skips_resources or n in left_out
        ]
        wanted = [
            _is_match(n) for n in numbers if not self.group[n].skips_resources and n not in left_out
        ]
        if not wanted:
            return
        class_label = self._texts[TextMap.LABELS, PRIORITY_CLASS_LABEL]
        qos_label = self._texts[TextMap.LABELS, QOS_LABEL]
        self.variables["tier"] = write_tier(class_label, qos_label, self._priority)
        self.variables["translates"] = join_all(
            (
                f"({join_any(wanted)})",
                f"!({join_any(spared)})" if spared else TRUE,
                'variables.tier != ""',
            )
        )
        self.variables |= write_variables("variables.tier")
        self._operations += [
            f"(variables.translates ? ({text}) : [])" for text in list_operations("variables.tier")
        ]


def write_lot(profile: ColocationProfile) -> str:
    """Return the condition that a pod is among the percent that a profile is for.

    The random digits of the uid of its owner decide, so all pods of an owner have the same lot.
    Which digits, the name of the profile decides: profiles are independent of each other.
    """
    if profile.probability >= 100:
        return TRUE
    if profile.probability <= 0:
        return FALSE
    start = find_lot_start(profile.name)
    digits = "+".join(
        f'"0123456789abcdef".indexOf(uid.substring({at}, {at + 1})) * {16 ** (3 - place)}'
        for place, at in enumerate(range(start, start + _LOT_DIGITS))
    )
    limit = _LOTS * profile.probability
    return (
        "has(object.metadata.ownerReferences) && object.metadata.ownerReferences"
        ".filter(owner, has(owner.controller) && owner.controller).map(owner, owner.uid)"
        f'.exists(uid, uid.matches("^{UUID}$") && ({digits}) * 100 < {limit})'
    )


UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_STARTS: Final = (0, 4, 24, 28, 32)
"""Where four random digits of such a uid begin."""


def find_lot_start(name: str) -> int:
    """Return where in the uid of an owner the lot for a profile stands."""
    return _STARTS[sum(name.encode()) % len(_STARTS)]


def _is_match(number: int) -> str:
    return f"variables.match{number}"


def _is_selected(number: int) -> str:
    return f"variables.selected{number}"


def _split(steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """Yield what can be written together: what has no condition of its own."""
    plain: list[Step] = []
    for step in steps:
        if isinstance(step, PutText | PutField):
            plain.append(step)
            continue
        if plain:
            yield plain
        plain = []
        yield (step,)
    if plain:
        yield plain


def _put(where: TextMap, key: str, value: str) -> str:
    return write_patch("add", write_text(f"{where}/{escape_pointer(key)}"), value)


def _write_absent(where: TextMap) -> str:
    return f"(!has({_MAPS[where]}) || {_MAPS[where]}.size() == 0)"


def _list_parents(step: Step) -> Iterator[tuple[str, str]]:
    """Yield the paths above what a step writes, and the condition that nothing is there."""
    if not isinstance(step, PutField):
        yield str(step.where), _write_absent(step.where)
        return
    absent, at, path = "", "object.spec", "/spec"
    for name in step.path[:-1]:
        at, path = f"{at}.{name}", f"{path}/{escape_pointer(name)}"
        absent = f"{absent} || !has({at})" if absent else f"!has({at})"
        yield path, f"({absent})"
