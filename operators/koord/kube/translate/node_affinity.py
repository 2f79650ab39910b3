"""Parses node selectors, node affinity and tolerations, once per distinct text.

Also the form of the required terms, on which the patch that pins a pod depends.

Label selectors of nodes and devices are translated in both directions.
"""

from dataclasses import dataclass
from enum import StrEnum
from sys import intern
from typing import Any, Final

import msgspec
from msgspec import Struct

from koord.api.quotaprofile import NodeSelector
from koord.api.resource import LabelSelector
from koord.caches import cached_by_text
from koord.core.model.pods import Toleration
from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm

NODE_NAME_FIELD: Final = "metadata.name"


class AffinityDepth(StrEnum):
    """The deepest existing field of ``spec.affinity.nodeAffinity.required…``."""

    NONE = "None"
    AFFINITY = "Affinity"
    NODE_AFFINITY = "NodeAffinity"
    REQUIRED = "Required"


class TermForm(StrEnum):
    """Content of a required term; an empty one matches no node and must not be extended."""

    EMPTY = "Empty"
    EXPRESSIONS = "Expressions"
    FIELDS = "Fields"


@dataclass(frozen=True, slots=True)
class AffinityForm:
    """The structure of a pod's required node affinity."""

    depth: AffinityDepth = AffinityDepth.NONE
    terms: tuple[TermForm, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedAffinity:
    """``spec.affinity.nodeAffinity`` as the core's terms, and its form."""

    terms: tuple[SelectorTerm, ...] | None = None
    form: AffinityForm = AffinityForm()
    pinned_to: str = ""
    preferences: tuple[tuple[int, SelectorTerm], ...] = ()


class _Expression(Struct, gc=False):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(Struct, rename="camel", gc=False):
    match_expressions: list[_Expression] | None = None
    match_fields: list[_Expression] | None = None


class _NodeSelector(Struct, rename="camel", gc=False):
    node_selector_terms: list[_Term] | None = None


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class _Preferred(Struct, gc=False):
    weight: int = 0
    preference: _Term = msgspec.field(default_factory=_Term)


class _NodeAffinity(Struct, gc=False):
    required: _NodeSelector | None = msgspec.field(default=None, name=_REQUIRED)
    preferred: list[_Preferred] | None = msgspec.field(default=None, name=_PREFERRED)


class _Affinity(Struct, rename="camel", gc=False):
    node_affinity: _NodeAffinity | None = None


class _WireToleration(Struct, gc=False):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


_affinity_decoder = msgspec.json.Decoder(_Affinity | None)
_node_selector_decoder = msgspec.json.Decoder(_NodeSelector | None)
_selector_decoder = msgspec.json.Decoder(dict[str, str] | None)
_tolerations_decoder = msgspec.json.Decoder(list[_WireToleration] | None)
_NO_AFFINITY: Final = ParsedAffinity()


@cached_by_text()
def parse_affinity(raw: bytes) -> ParsedAffinity:
    """Parse ``spec.affinity``; empty bytes mean it is absent."""
    affinity = _affinity_decoder.decode(raw) if raw else None
    if affinity is None:
        return _NO_AFFINITY
    node_affinity = affinity.node_affinity
    preferences = _parse_preferences(node_affinity)
    if node_affinity is None or node_affinity.required is None:
        depth = AffinityDepth.AFFINITY if node_affinity is None else AffinityDepth.NODE_AFFINITY
        return ParsedAffinity(form=AffinityForm(depth), preferences=preferences)
    terms = tuple(_parse_term(t) for t in node_affinity.required.node_selector_terms or ())
    return ParsedAffinity(
        terms=terms,
        form=AffinityForm(AffinityDepth.REQUIRED, tuple(map(_form_of, terms))),
        pinned_to=pinned_to(terms),
        preferences=preferences,
    )


def _parse_preferences(affinity: _NodeAffinity | None) -> tuple[tuple[int, SelectorTerm], ...]:
    preferred = (affinity.preferred if affinity else None) or ()
    return tuple(
        (preference.weight, _parse_term(preference.preference))
        for preference in preferred
        if preference.weight
    )


def parse_node_selector(raw: bytes) -> tuple[SelectorTerm, ...] | None:
    selector = _node_selector_decoder.decode(raw)
    return None if selector is None else tuple(map(_parse_term, selector.node_selector_terms or ()))


@cached_by_text()
def parse_selector(raw: bytes) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((_selector_decoder.decode(raw) or {}).items())) if raw else ()


@cached_by_text()
def parse_tolerations(raw: bytes) -> tuple[Toleration, ...]:
    """Parse ``spec.tolerations``, sorted, without duplicates and timeouts."""
    wire = (_tolerations_decoder.decode(raw) if raw else None) or ()
    tolerations = {(t.key, t.operator or "Equal", t.value, t.effect) for t in wire}
    return tuple(Toleration(*fields) for fields in sorted(tolerations))


def _parse_term(term: _Term) -> SelectorTerm:
    return SelectorTerm(
        expressions=tuple(map(_parse_requirement, term.match_expressions or ())),
        fields=tuple(map(_parse_requirement, term.match_fields or ())),
    )


def _parse_requirement(wire: _Expression) -> Requirement:
    return Requirement(wire.key, SelectorOperator(wire.operator), tuple(wire.values or ()))


def _form_of(term: SelectorTerm) -> TermForm:
    if term.fields:
        return TermForm.FIELDS
    return TermForm.EXPRESSIONS if term.expressions else TermForm.EMPTY


def pinned_to(terms: tuple[SelectorTerm, ...]) -> str:
    """Return the node name if the terms admit exactly one by name."""
    names = {_named_node(t) for t in terms if t.fields or t.expressions}
    return names.pop() if len(names) == 1 else ""


def _named_node(term: SelectorTerm) -> str:
    for field in term.fields:
        if (
            field.key == NODE_NAME_FIELD
            and field.operator is SelectorOperator.IN
            and len(field.values) == 1
        ):
            return field.values[0]
    return ""


def translate_selector(selector: NodeSelector | LabelSelector) -> tuple[Requirement, ...]:
    labels = (selector.match_labels or {}).items()
    # Keys are the same in many objects, so they are kept once.
    return (
        *(Requirement(intern(key), SelectorOperator.IN, (value,)) for key, value in sorted(labels)),
        *(
            Requirement(
                intern(match_expression.key),
                SelectorOperator(match_expression.operator),
                tuple(match_expression.values or ()),
            )
            for match_expression in selector.match_expressions or ()
        ),
    )


def encode_selector(selector: tuple[Requirement, ...]) -> str:
    """Return a selector as the text of an annotation."""
    return msgspec.json.encode(make_selector(selector)).decode()


def make_selector(selector: tuple[Requirement, ...]) -> dict[str, Any]:
    """Return a selector in the form of the API."""
    return {"matchExpressions": [_make(requirement) for requirement in selector]}


def _make(requirement: Requirement) -> dict[str, Any]:
    made: dict[str, Any] = {"key": requirement.key, "operator": str(requirement.operator)}
    return made | {"values": list(requirement.values)} if requirement.values else made
