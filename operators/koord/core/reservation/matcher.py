"""Which reservations pods may use, remembered for pods that agree in all that counts.

An index finds those that a pod may own without asking each: by names, owners and labels. What it
finds is a superset; ``matching`` decides.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from koord.core.engine.view import CycleView
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.core.model.selectors import SelectorOperator
from koord.core.reservation.matching import (
    MOST_JUDGED,
    ClosedReservation,
    MatchOutcome,
    find_closed,
    judge,
    problems_of,
)
from koord.core.reservation.model import (
    NAME,
    NO_HINTS,
    AllocatePolicy,
    Owner,
    ReservationHints,
    ReservationInfo,
)
from koord.core.reservation.reasons import (
    InvalidReservation,
    InvalidReservationAnnotation,
    NoReservationFits,
)

if TYPE_CHECKING:
    from koord.core.reservation.plugin import Reservations


@dataclass(frozen=True, slots=True)
class Reserving:
    """A reservation that is to be placed."""

    policy: AllocatePolicy
    pinned_to: str
    takes_in: str = ""
    """Its uid if it takes in running pods."""


@dataclass(frozen=True, eq=False, slots=True)
class MatchedReservations:
    """A pod: the reservations (uid) that it may use, and whether it must use one.

    One for all pods that may use the same.
    """

    uids: tuple[str, ...]
    is_required: bool


class ReservationMatcher:
    """What pods may use, as of one cycle."""

    def __init__(self, plugin: "Reservations", cycle: CycleView) -> None:
        self._plugin, self._cycle, self._table = plugin, cycle, cycle.table
        self._matched_of, self._by_labels = plugin.matches(cycle.table.epoch)
        self._missing = MatchedReservations((), is_required=False)

    def of(self, pod: Pod) -> "MatchedReservations | Reserving | None":
        """Return what a pod may use, or that it is itself a reservation; None for nothing."""
        extension = _extension_of(pod)
        if isinstance(extension, Reserving):
            return extension
        hints = extension if isinstance(extension, ReservationHints) else NO_HINTS
        index = self._plugin.index
        if hints.is_ignoring or (not index and not hints.has_affinity):
            return None
        named = tuple(sorted(set(index.by_identity(pod))))
        exact = pod.shape.requests if hints.exact else ()
        key = (pod.profile, hints, exact, named, pod.key if named else "")
        if key not in self._matched_of:
            uids = sorted({*named, *index.by_labels(pod)})
            usable = tuple(uid for uid in uids if self._may_use(pod, hints, uid))
            is_any = usable or hints.has_affinity
            self._matched_of[key] = self._intern(usable, hints) if is_any else None
            if extension is None and not named:
                self._by_labels[pod.profile] = self._matched_of[key]
        return self._matched_of[key]

    def of_all(
        self, pods: Sequence[Pod]
    ) -> "Sequence[MatchedReservations | Reserving | None] | None":
        """Return :meth:`of` of each pod; None if it is None for all of them."""
        if not self._plugin.index and not self._cycle.with_extensions(pods):
            return None
        if self._plugin.index.names_pods:
            matches = [self.of(pod) for pod in pods]
        else:
            # Only labels count for pods that say nothing, and most pods share theirs.
            by_labels, missing = self._by_labels, self._missing
            matches = [
                self.of(pod)
                if pod.extensions or (matched := by_labels.get(pod.profile, missing)) is missing
                else matched
                for pod in pods
            ]
        return matches if any(matches) else None

    def _intern(self, uids: tuple[str, ...], hints: ReservationHints) -> MatchedReservations | None:
        key = (uids, hints.has_affinity)
        return self._matched_of.setdefault(key, MatchedReservations(*key))

    def _may_use(self, pod: Pod, hints: ReservationHints, uid: str) -> bool:
        return self._judge(pod, hints, uid).may_use

    def _judge(self, pod: Pod, hints: ReservationHints, uid: str) -> MatchOutcome:
        reservation = self._plugin.accounts[uid].reservation
        row = self._table.row_of.get(reservation.status.node)
        if row is None:
            return MatchOutcome.OWNERS  # Nobody can use it without its node.
        labels, every_namespace = self._table.node_at(row).labels, self._plugin.compat
        return judge(pod, hints, reservation, labels, every_namespace=every_namespace)

    def blocking_reasons(self, pods: Sequence[Pod]) -> Mapping[str, Reason]:
        """Return, by uid, what is wrong with reservations, or keeps pods from all of them."""
        reasons: dict[str, Reason] = {}
        pods = self._cycle.with_extensions(pods)
        resources = () if self._plugin.compat else self._table.columns
        for pod in pods:
            extension = _extension_of(pod)
            if isinstance(extension, Reserving):
                problems = self._plugin.reservations[pod.uid].find_problems()
                if problems:
                    reasons[pod.uid] = InvalidReservation(pod.key, problems)
            elif isinstance(extension, ReservationHints) and (
                problems := problems_of(extension, pod, resources)
            ):
                reasons[pod.uid] = InvalidReservationAnnotation(pod.key, problems)
            elif isinstance(extension, ReservationHints) and extension.has_affinity:
                matched = self.of(pod)
                if isinstance(matched, MatchedReservations) and not matched.uids:
                    reasons[pod.uid] = self._explain_none(pod, extension)
        return reasons

    def _explain_none(self, pod: Pod, hints: ReservationHints) -> NoReservationFits:
        """Count the reservations that a pod owns by the rule that keeps it out."""
        index = self._plugin.index
        uids = {*index.by_identity(pod), *index.by_labels(pod)}
        outcomes = Counter(self._judge(pod, hints, uid) for uid in uids)
        del outcomes[MatchOutcome.OWNERS]
        problems = ((f"Reservation(s) {outcome.value}", n) for outcome, n in outcomes.items())
        return NoReservationFits(
            pod.key,
            outcomes.total(),
            tuple(sorted(problems)),
            hints.name,
            self._find_closed(pod, hints),
        )

    def _find_closed(self, pod: Pod, hints: ReservationHints) -> tuple[ClosedReservation, ...]:
        plugin = self._plugin
        uids = sorted({*plugin.closed.by_identity(pod), *plugin.closed.by_labels(pod)})
        if hints.name:  # a name says more than labels, which thousands may share
            uids = [uid for uid in uids if plugin.reservations[uid].name == hints.name]
        candidates = [plugin.reservations[uid] for uid in uids[:MOST_JUDGED]]
        rows = {
            reservation.status.node: self._table.row_of.get(reservation.status.node)
            for reservation in candidates
        }
        return find_closed(
            pod,
            hints,
            [(reservation, plugin.count_users(reservation.uid)) for reservation in candidates],
            {
                node: self._table.node_at(row).labels
                for node, row in rows.items()
                if row is not None
            },
            every_namespace=plugin.compat,
        )


def needs_reservation(pod: Pod) -> bool:
    """Whether a pod may be placed nowhere but in a reservation."""
    hints = _extension_of(pod)
    return isinstance(hints, ReservationHints) and hints.has_affinity


def _extension_of(pod: Pod) -> object:
    return next((extension for name, extension in pod.extensions if name == NAME), None)


Key: TypeAlias = tuple[str, ...]
_ANY: Key = ("any",)
_OF_LABELS = frozenset({"any", "label"})


class OwnerIndex:
    """Reservations (uid) by what their owners must have."""

    def __init__(self) -> None:
        self._uids_of: dict[Key, dict[str, None]] = {}
        self._keys: dict[str, tuple[Key, ...]] = {}
        self._naming = 0

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def names_pods(self) -> bool:
        """Whether any names pods or controllers, so that labels are not all that counts."""
        return self._naming > 0

    def add(self, reservation: ReservationInfo) -> None:
        self.discard(reservation.uid)
        keys = tuple(dict.fromkeys(map(_key_of, reservation.owners)))
        self._keys[reservation.uid] = keys
        for key in keys:
            self._uids_of.setdefault(key, {})[reservation.uid] = None
            self._naming += key[0] not in _OF_LABELS

    def discard(self, uid: str) -> None:
        for key in self._keys.pop(uid, ()):
            del self._uids_of[key][uid]
            self._naming -= key[0] not in _OF_LABELS
            if not self._uids_of[key]:
                del self._uids_of[key]

    def by_labels(self, pod: Pod) -> Iterator[str]:
        """Yield what only depends on labels, which many pods share."""
        yield from self._uids_of.get(_ANY, ())
        for name, value in pod.profile.labels.items():
            yield from self._uids_of.get(("label", name, value), ())

    def by_identity(self, pod: Pod) -> Iterator[str]:
        """Yield what names the pod itself or its controllers."""
        keys = [("pod", pod.name), ("pod-uid", pod.uid)]
        keys += [("owner", owner.name) for owner in pod.owners]
        keys += [("owner-uid", owner.uid) for owner in pod.owners]
        for key in keys:
            yield from self._uids_of.get(key, ())


def _key_of(owner: Owner) -> Key:
    """Return one thing that an owner must have."""
    named: Iterable[tuple[str, str]] = ()
    if owner.pod is not None:
        named = (("pod-uid", owner.pod.uid), ("pod", owner.pod.name))
    elif owner.controller is not None:
        named = (("owner-uid", owner.controller.uid), ("owner", owner.controller.name))
    for key in named:
        if key[1]:
            return key
    for requirement in owner.selector or ():
        if requirement.operator is SelectorOperator.IN and len(requirement.values) == 1:
            return ("label", requirement.key, requirement.values[0])
    return _ANY
