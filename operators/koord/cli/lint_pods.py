"""What ``koord lint`` says of QoS, priority and profiles: of templates, as pods would be created.

The rules are in ``koord.core``. A PriorityClass is known from the files, or is one of those that
Koordinator ships; of any other nothing is said. Labels of namespaces are known where the files have
the Namespace, and assumed to be right otherwise, which a note says.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from koord.api.parse import Problem, format_field
from koord.api.untyped import to_list, to_map
from koord.api.workloads import Document, list_templates
from koord.core.model.koordinator_class import BANDS, PRIORITY_CLASS_LABEL, QOS_LABEL
from koord.core.model.pod_requests import InitContainer, effective_requests
from koord.core.model.qos_rules import QosProblem, QosRule, describe, find_qos_problems
from koord.core.profiles.apply import AppliedProfiles, apply_profiles
from koord.core.profiles.generate import PublishOutcome, generate, write_verdict
from koord.core.profiles.model import ClassValue, ColocationProfile
from koord.core.profiles.policy import NAMESPACE_NAME
from koord.core.profiles.translation import CONTAINERS, KINDS
from koord.kube.decode import MALFORMED
from koord.kube.translate.amounts import parse_amount
from koord.kube.translate.profiles import ColocationProfileTranslator
from koord.kube.wire import WireCustomResource

SHIPPED: Final = {str(band): ClassValue(values[0]) for band, values in BANDS.items()}
"""The PriorityClasses that Koordinator ships."""
MOST_TRIED: Final = 1 << 19
"""Profiles times templates of one run: some seconds. Others are judged as written."""
_SYSTEM: Final = "kube-system"
_FIELDS: Final[Mapping[QosRule, tuple[str, ...]]] = {
    QosRule.FORBIDDEN_COMBINATION: ("metadata", "labels", QOS_LABEL),
    QosRule.CPUS_REQUIRED: ("spec", "containers"),
    QosRule.WHOLE_CPUS_REQUIRED: ("spec", "containers"),
    QosRule.BEST_EFFORT_REQUIRED: ("metadata", "labels", QOS_LABEL),
}


@dataclass(frozen=True, slots=True)
class InjectedField:
    """A field that profiles write into a template; values as JSON, empty for none."""

    path: str
    before: str
    after: str

    def __str__(self) -> str:
        if not self.after:
            return f"{self.path}: removed, was {self.before}"
        was = f", was {self.before}" if self.before else ""
        return f"{self.path}: {self.after}{was}"


@dataclass(frozen=True, slots=True)
class InjectedTemplate:
    """What profiles make of one template of a document."""

    at: int
    """The place of the document."""
    profiles: tuple[str, ...]
    fields: tuple[InjectedField, ...]
    assumed: tuple[str, ...] = ()
    """Labels of the namespace that are assumed."""


@dataclass(slots=True)
class LintedProfiles:
    """The profiles and PriorityClasses of files."""

    profiles: list[ColocationProfile] = field(default_factory=list)
    classes: dict[str, ClassValue] = field(default_factory=lambda: dict(SHIPPED))
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    tried: int = 0
    """How often it was looked whether a profile is for a template."""
    untried: int = 0
    """Templates for which that would have been too often."""
    _assumed: dict[str, list[ColocationProfile]] = field(default_factory=dict)

    def choose(self, namespace: str) -> list[ColocationProfile]:
        """Return the profiles to be tried on a template of a namespace; none once it is enough."""
        if self.tried + len(self.profiles) > MOST_TRIED:
            self.untried += 1
            return []
        self.tried += len(self.profiles)
        if namespace in self.namespaces:
            return self.profiles
        if namespace not in self._assumed:
            labels = {NAMESPACE_NAME: namespace} if namespace else {}
            profiles = [_assume(profile, labels) for profile in self.profiles]
            self._assumed = {namespace: profiles}  # those of thousands are many profiles
        return self._assumed[namespace]

    def find_unpublished(self) -> Iterator[tuple[str, str]]:
        """Yield the names of profiles that are not published as a whole, and why."""
        verdicts = generate(self.profiles, self.classes, ()).verdicts
        for profile in self.profiles:
            verdict = verdicts[profile.name]
            if verdict.outcome not in {PublishOutcome.PUBLISHED, PublishOutcome.INVALID}:
                yield profile.name, f"not published: {write_verdict(profile, verdict)}"
            elif profile.left_out:
                left_out = ", ".join(f"spec.patch.{path}" for path in profile.left_out)
                yield profile.name, f"not written into pods: {left_out}"


def read_profiles(documents: Iterable[object]) -> LintedProfiles:
    """Return the profiles, PriorityClasses and Namespaces among documents."""
    linted = LintedProfiles()
    for document in documents:
        if not isinstance(document, dict):
            continue
        meta = to_map(document.get("metadata"))
        name = str(meta.get("name") or "")
        match document.get("kind"):
            case "ClusterColocationProfile":
                with suppress(*MALFORMED):
                    raw = msgspec.json.encode(document)
                    wire = msgspec.json.decode(raw, type=WireCustomResource)
                    linted.profiles.append(ColocationProfileTranslator().translate(wire))
            case "PriorityClass":
                value = document.get("value")
                if isinstance(value, int):
                    never = document.get("preemptionPolicy") == "Never"
                    linted.classes[name] = ClassValue(value, never)
            case "Namespace":
                labels = {str(k): str(v) for k, v in to_map(meta.get("labels")).items()}
                linted.namespaces[name] = {**labels, NAMESPACE_NAME: name}
            case _:
                pass
    return linted


def find_qos_findings(document: Document, linted: LintedProfiles) -> Iterator[Problem]:
    """Yield what is wrong with QoS, class and resources of the templates of a document.

    Judged is the pod as the profiles of the files leave it.
    """
    for path, template in list_templates(document):
        pod = template
        if _is_pod(template):
            pod = _apply(template, _namespace_of(document), linted)[0].pod
        for problem in _judge(pod, linted.classes):
            names = (*path.split("."),) if path else ()
            place = format_field((*names, *_FIELDS[problem.rule]))
            labels = to_map(to_map(pod.get("metadata")).get("labels"))
            yield Problem(place, str(labels.get(QOS_LABEL, "")), describe(problem))


def _judge(template: Document, classes: Mapping[str, ClassValue]) -> Iterator[QosProblem]:
    meta, spec = to_map(template.get("metadata")), to_map(template.get("spec"))
    labels = {str(key): str(value) for key, value in to_map(meta.get("labels")).items()}
    name, number = str(spec.get("priorityClassName") or ""), spec.get("priority")
    is_known = isinstance(number, int) or not name or name in classes
    priority = number if isinstance(number, int) else classes[name].value if name in classes else 0
    for problem in find_qos_problems(labels, priority, _find_requests(spec)):
        is_about_class = problem.rule is QosRule.FORBIDDEN_COMBINATION
        if is_known or not is_about_class or PRIORITY_CLASS_LABEL in labels:
            yield problem


def _find_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    running = [_read_requests(container) for container in to_list(spec.get("containers"))]
    starting = [
        InitContainer(_read_requests(init), to_map(init).get("restartPolicy") == "Always")
        for init in to_list(spec.get("initContainers"))
    ]
    return dict(effective_requests(running, starting))


def _read_requests(container: object) -> dict[str, int]:
    resources = to_map(to_map(container).get("resources"))
    written = {**to_map(resources.get("limits")), **to_map(resources.get("requests"))}
    amounts = {}
    for name, quantity in written.items():
        with suppress(*MALFORMED):
            amounts[str(name)] = parse_amount(str(name), quantity)
    return amounts


def find_injected(
    documents: Iterable[object], linted: LintedProfiles
) -> Iterator[InjectedTemplate]:
    """Yield what the profiles write into the templates of documents."""
    for at, document in enumerate(documents):
        if not isinstance(document, dict) or _namespace_of(document) == _SYSTEM:
            continue
        for path, template in list_templates(document):
            if _is_pod(template):
                yield _inject(at, path, template, _namespace_of(document), linted)


def _is_pod(template: Document) -> bool:
    """Whether all that profiles look at has the form that it has in pods."""
    meta, spec = template.get("metadata"), template.get("spec")
    if not isinstance(spec, dict) or not isinstance(meta, dict | None):
        return False
    maps = [spec.get("nodeSelector"), spec.get("affinity")]
    maps += [(meta or {}).get(name) for name in ("labels", "annotations")]
    affinity = to_map(spec.get("affinity"))
    lists = [(meta or {}).get("ownerReferences"), *(spec.get(name) for name in CONTAINERS)]
    containers = [container for name in CONTAINERS for container in to_list(spec.get(name))]
    for container in containers:
        resources = to_map(container).get("resources")
        maps += [resources, *(to_map(resources).get(kind) for kind in KINDS)]
    maps += [*affinity.values(), *to_list((meta or {}).get("ownerReferences"))]
    return (
        all(isinstance(container, dict) for container in containers)
        and all(value is None or isinstance(value, dict) for value in maps)
        and all(value is None or isinstance(value, list) for value in lists)
        and isinstance(spec.get("priority"), int | None)
    )


def _namespace_of(document: Document) -> str:
    return str(to_map(document.get("metadata")).get("namespace") or "")


def _inject(
    at: int, path: str, template: Document, namespace: str, linted: LintedProfiles
) -> InjectedTemplate:
    applied, assumed = _apply(template, namespace, linted)
    prefix = tuple(path.split(".")) if path else ()
    before, after = dict(_flatten(template, prefix)), dict(_flatten(applied.pod, prefix))
    names = [name for name in after if before.get(name) != after[name]]
    names += [name for name in before if name not in after]
    fields = tuple(
        InjectedField(name, before.get(name, ""), after.get(name, "")) for name in sorted(names)
    )
    return InjectedTemplate(at, applied.names, fields, assumed)


def _apply(
    template: Document, namespace: str, linted: LintedProfiles
) -> tuple[AppliedProfiles, tuple[str, ...]]:
    """Return a pod as profiles leave it, and the labels of its namespace that are assumed."""
    given = linted.namespaces.get(namespace)
    labels = given or ({NAMESPACE_NAME: namespace} if namespace else {})
    applied = apply_profiles(template, labels, linted.choose(namespace), linted.classes)
    names = frozenset(applied.names if given is None else ())
    assumed = {
        requirement.key
        for profile in (linted.profiles if names else ())
        if profile.name in names
        for requirement in profile.namespace_selector
        if requirement.key not in labels
    }
    return applied, tuple(sorted(assumed))


def _assume(profile: ColocationProfile, labels: Mapping[str, str]) -> ColocationProfile:
    """Return a profile whose requirements on unknown labels of the namespace hold."""
    selector = tuple(r for r in profile.namespace_selector if r.key in labels)
    return replace(profile, namespace_selector=selector)


def _flatten(value: object, at: tuple[str | int, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from _flatten(below, (*at, str(name)))
    elif isinstance(value, list) and value:
        for place, below in enumerate(value):
            yield from _flatten(below, (*at, place))
    elif value not in ({}, [], None):
        yield format_field(at), msgspec.json.encode(value).decode()
