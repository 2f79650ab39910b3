"""What pods say about reservations: from annotations to ``koord.core.reservation``."""

from collections.abc import Hashable, Mapping
from typing import Final

import msgspec
from msgspec import Struct
from typing_extensions import override

from koord.api.annotations import (
    EXACT_MATCH,
    RESERVATION_AFFINITY,
    ReservationAffinity,
    SelectorRequirement,
)
from koord.api.keys.reservation import IGNORED, PRE_ALLOCATABLE_PRIORITY
from koord.api.parse import InvalidObject
from koord.core.model.pods import Allocation, Toleration
from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm
from koord.core.reservation.model import (
    ALLOCATED,
    NAME,
    NO_HINTS,
    ReservationHints,
    ReservationUse,
)
from koord.kube.translate.pod_reader import PodReader

MOST_DIGITS: Final = 12
_HINT_KEYS: Final = frozenset({RESERVATION_AFFINITY.key, EXACT_MATCH.key})


class _Allocated(Struct, gc=False):
    name: str
    uid: str


_allocated_decoder = msgspec.json.Decoder(_Allocated)


def read_reservation_hints(
    annotations: Mapping[str, str], labels: Mapping[str, str]
) -> ReservationHints:
    """Return what a pod says about reservations, and what of it cannot be read."""
    is_ignoring = "true" in {labels.get(IGNORED), annotations.get(IGNORED)}
    rank = _read_rank(annotations)
    if _HINT_KEYS.isdisjoint(annotations):
        is_silent = not is_ignoring and not rank
        return NO_HINTS if is_silent else ReservationHints(is_ignoring=is_ignoring, rank=rank)
    affinity, exact = RESERVATION_AFFINITY.read(annotations), EXACT_MATCH.read(annotations)
    invalid = [invalid for invalid in (affinity, exact) if isinstance(invalid, InvalidObject)]
    if invalid:
        problems = tuple(
            (problem.field, problem.message)
            for invalid_object in invalid
            for problem in invalid_object.problems
        )
        return ReservationHints(has_affinity=True, problems=problems)
    names = tuple(exact.resource_names) if exact and not isinstance(exact, InvalidObject) else ()
    if affinity is None or isinstance(affinity, InvalidObject):
        return ReservationHints(exact=names, is_ignoring=is_ignoring, rank=rank)
    return ReservationHints(
        has_affinity=True,
        name=affinity.name,
        selector=tuple(sorted(affinity.reservation_selector.items())),
        terms=_read_terms(affinity),
        tolerations=tuple(
            Toleration(
                toleration.key, toleration.operator or "Equal", toleration.value, toleration.effect
            )
            for toleration in affinity.tolerations
        ),
        exact=names,
        is_ignoring=is_ignoring,
        rank=rank,
    )


class ReservationPodReader(PodReader):
    """Reads what pods say about reservations, and which one they use."""

    name = NAME
    record = ALLOCATED

    @override
    def read_hints(
        self, annotations: Mapping[str, str], labels: Mapping[str, str], priority: int
    ) -> Hashable | None:
        hints = read_reservation_hints(annotations, labels)
        return None if hints is NO_HINTS else hints

    @override
    def read_record(self, uid: str, text: str, hints: Hashable | None) -> Allocation:
        return read_use(uid, text)


def _read_rank(annotations: Mapping[str, str]) -> int:
    """Return the rank of a pod; a text that is no number counts as none."""
    try:
        return int(annotations.get(PRE_ALLOCATABLE_PRIORITY, "0")[:MOST_DIGITS])
    except ValueError:
        return 0


def _read_terms(affinity: ReservationAffinity) -> tuple[SelectorTerm, ...] | None:
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return None
    return tuple(
        SelectorTerm(
            tuple(map(_read_requirement, term.match_expressions)),
            tuple(map(_read_requirement, term.match_fields)),
        )
        for term in required.reservation_selector_terms
    )


def _read_requirement(selector_requirement: SelectorRequirement) -> Requirement:
    return Requirement(
        selector_requirement.key,
        SelectorOperator(selector_requirement.operator),
        tuple(selector_requirement.values),
    )


def read_use(pod: str, text: str) -> ReservationUse:
    """Return what the annotation of a pod (uid) records. Raises ValueError."""
    allocated = _allocated_decoder.decode(text)
    return ReservationUse(pod, allocated.name, allocated.uid)
