"""Owners of pods: from the wire to ``core.owners``, by the rules of their kind.

Only what the rules find is kept of an object. Its annotations give settings to its gangs, as those
of a PodGroup do.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Raw

from koord.api.gang import (
    GANG_ANNOTATIONS,
    BadSetting,
    parse_min_available,
    parse_native_settings,
)
from koord.api.keys import gang as keys
from koord.api.keys import operators
from koord.api.owner_kinds import ClaimError, ClaimReader, GangClaim, Role, WorkloadKind
from koord.core.model.gangs import GangSource, GangSpec
from koord.core.model.pods import OwnerReference
from koord.core.model.text import cut
from koord.core.owners.model import (
    NAMED_GROUPS,
    HeldBackPods,
    KindRule,
    OwnerClaim,
    OwnerObject,
    OwnerPart,
    OwnerRole,
    OwnerRoles,
    PodRule,
    controller_of,
    uid_of_group,
)
from koord.core.owners.plugin import NAME, OPTED_OUT
from koord.core.owners.reasons import InvalidOwner
from koord.kube.decode import MALFORMED
from koord.kube.kind import TranslatorOptions
from koord.kube.translate.gangs import make_gang_spec, translate_bad_values
from koord.kube.translate.templates import TemplateReader
from koord.kube.wire import WireCustomResource, WireObjectMeta, WireOwnerReference

_PARTS: Final = {"claims": OwnerPart.CLAIMS, "passes": OwnerPart.PASSES, "ends": OwnerPart.ENDS}
_NO_TEXTS: Final[Mapping[str, str]] = {}
_SETTINGS: Final = frozenset(GANG_ANNOTATIONS) - {
    keys.MIN_AVAILABLE,
    keys.KUEUE_TOTAL,
    keys.KUEUE_FAST,
}
_any: Final = msgspec.json.Decoder(Any)


def make_rule(kind: WorkloadKind) -> KindRule:
    """Return what the planner has to know of a kind."""
    labels = kind.pods
    return KindRule(
        (kind.group, kind.kind),
        _PARTS[kind.part],
        PodRule(
            role=labels.role,
            role_names=tuple(labels.role_names.items()),
            other_role=labels.other_role,
            index=labels.index,
            incarnation=labels.incarnation,
            group=labels.group,
            inner=labels.inner,
            is_by_top_pod=labels.by_top_pod,
        ),
    )


def make_rules(kinds: Iterable[WorkloadKind]) -> tuple[KindRule, ...]:
    """Return the rules of kinds; the first of one name holds, whatever its version."""
    rules: dict[tuple[str, str], KindRule] = {}
    for kind in kinds:
        rules.setdefault((kind.group, kind.kind), make_rule(kind))
    return tuple(rules.values())


class OwnerTranslator:
    """Translates the objects of one kind."""

    def __init__(self, kind: WorkloadKind, options: TranslatorOptions) -> None:
        self._rule = make_rule(kind)
        self._defaults = options.gang_defaults
        holds_room = kind.gang is not None and kind.gang.held_back is not None
        self._templates = TemplateReader(options) if holds_room else None
        self._reader = None if kind.gang is None else ClaimReader(kind.gang)
        self._plain = self._read_settings(_NO_TEXTS)
        """The settings of gangs whose owner says none: most of them."""

    def forget(self, owner: OwnerObject, /) -> None:
        pass

    def translate(self, wire: WireCustomResource) -> OwnerObject:
        """Translate an object; whatever it says of its gangs, it is one."""
        meta = wire.metadata
        annotations = meta.annotations or _NO_TEXTS
        claim = None
        if self._reader is not None:
            title = f"{self._rule.key[1].lower()}/{meta.namespace}/{meta.name}"
            claim = self._read_claim(title, self._reader, wire)
        key, uid = self._rule.key, meta.uid
        if key in NAMED_GROUPS:
            uid = uid_of_group(key[0], meta.namespace, meta.name)
        return OwnerObject(
            uid,
            meta.namespace,
            meta.name,
            self._rule,
            controller_of(map(_translate_reference, meta.owner_references or ())),
            claim,
            annotations.get(operators.OWNER_GROUPING) == "false",
        )

    def _read_settings(self, annotations: Mapping[str, str]) -> GangSpec:
        settings, bad = parse_native_settings("", 1, annotations, self._defaults)
        return make_gang_spec("", settings, GangSource.OWNER, translate_bad_values(bad))

    def _read_claim(self, title: str, reader: ClaimReader, wire: WireCustomResource) -> OwnerClaim:
        annotations = wire.metadata.annotations or _NO_TEXTS
        has_settings = not _SETTINGS.isdisjoint(annotations)
        spec = self._read_settings(annotations) if has_settings else self._plain
        try:
            claim = reader.read(_make_document(wire))
            least = _read_own_minimum(annotations)
            held_back = tuple(self._read_held_back(wire.metadata, claim))
        except ClaimError as error:
            problem = InvalidOwner(title, error.field, error.problem, error.value)
            return OwnerClaim(OwnerRoles(()), spec, has_settings, problem=problem)
        return OwnerClaim(
            _make_roles(claim.roles, claim.is_separate),
            spec,
            has_settings,
            least=claim.least if least is None else least,
            slots=claim.slots,
            finished=claim.finished,
            is_elastic=claim.is_elastic,
            restarts_whole=claim.restarts_whole,
            is_suspended=claim.is_suspended,
            held_back=held_back,
            shared_label=claim.shared_label,
        )

    def _read_held_back(self, meta: WireObjectMeta, claim: GangClaim) -> Iterator[HeldBackPods]:
        """Yield the pods that come later; what is no gang of their owner gets no room."""
        reader = self._templates
        if reader is None:
            return
        for role, value in claim.held_back:
            try:
                template = reader.read(meta, msgspec.json.encode(value))
            except MALFORMED as error:
                problem = f"cannot be read: {cut(str(error))}"
                raise ClaimError(f"heldBack.{role}", problem) from error
            pod = template.pod
            if pod.gang is None and not pod.node and (NAME, OPTED_OUT) not in pod.extensions:
                yield HeldBackPods(role, pod, 0, priority_class=template.priority_class)


def _read_own_minimum(annotations: Mapping[str, str]) -> int | None:
    """Return the minimum that annotations of an owner say, which has precedence."""
    if keys.MIN_AVAILABLE not in annotations:
        return None
    least = parse_min_available(_NO_TEXTS, annotations)
    if isinstance(least, BadSetting):
        raise ClaimError(least.key, least.problem, least.value)
    return least


@lru_cache(maxsize=1024)
def _make_roles(roles: tuple[Role, ...], is_separate: bool) -> OwnerRoles:  # noqa: FBT001
    """Return the roles of an owner; owners with equal ones share them."""
    own = (OwnerRole(role.name, role.size, role.least, role.inner, role.after) for role in roles)
    return OwnerRoles(tuple(own), is_separate)


def _make_document(wire: WireCustomResource) -> dict[str, Any]:
    meta = wire.metadata
    return {
        "metadata": {
            "name": meta.name,
            "labels": meta.labels or {},
            "annotations": meta.annotations or {},
        },
        "spec": _decode("spec", wire.spec),
        "status": _decode("status", wire.status),
    }


def _decode(field: str, raw: Raw) -> Any:
    try:
        return _any.decode(raw) if bytes(raw) else None
    except MALFORMED as error:
        raise ClaimError(field, "cannot be read") from error


def _translate_reference(wire: WireOwnerReference) -> OwnerReference:
    return OwnerReference(wire.name, wire.kind, wire.api_version, wire.uid, bool(wire.controller))
