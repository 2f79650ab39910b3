"""Answers about one unit: why it waits, what would help it, and what happened to it."""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Any, Final

from koord.answers.encoding import encode
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.explanation import Explanation
from koord.answers.happenings import Subject
from koord.answers.hidden_amounts import hide_in_explanation
from koord.answers.outlook import limit_time
from koord.answers.reading import Target, TargetKind, TargetNotFoundError, describe_missing
from koord.answers.remedies import RemedyActor, encode_remedies
from koord.answers.remedy_search import verify
from koord.answers.story import hide_others
from koord.answers.why import make_answer
from koord.core.reservation.plugin import Reservations
from koord.kube.errors import KubeError
from koord.see.route import KINDS, Ask, NothingThere, WithGaps, target_of
from koord.see.snapshots import Snapshot

_TRIAL_SECONDS: Final = 1.0
"""What trying may take, until it ends with what it has."""


def _explain(snapshot: Snapshot, ask: Ask) -> Explanation:
    target = target_of(snapshot, ask)
    if target is snapshot.target:
        raise NothingThere(f"{ask.parts['kind']!r} is none of {', '.join(KINDS)}")
    if target.kind is TargetKind.RESERVATION:
        _refuse_hidden_reservation(snapshot, target)
    if snapshot.explained is not None and snapshot.explained.target == target:
        return snapshot.explained  # who asks why mostly asks next what would help
    details = snapshot.reading.all_details.get((target.kind, target.title))
    try:
        answer = make_answer(replace(snapshot.reading, details=details), target, snapshot.at)
    except TargetNotFoundError as error:
        raise NothingThere(str(error)) from None
    snapshot.explained = answer
    return answer


def _refuse_hidden_reservation(snapshot: Snapshot, target: Target) -> None:
    """Refuse one that is not there, or not the asker's to see, in the same words."""
    there = snapshot.reading.state.plugin(Reservations).reservations.values()
    is_there = any(each.name == target.name for each in there)
    if not (snapshot.reading.sight.reservations and is_there):
        raise NothingThere(f"there is no Reservation {target.name}, or you may not see it")


def explain_unit(snapshot: Snapshot, ask: Ask) -> Any:
    return encode(hide_in_explanation(_explain(snapshot, ask), snapshot.reading.sight))


def find_remedies(snapshot: Snapshot, ask: Ask) -> Any:
    is_over = limit_time(_TRIAL_SECONDS, monotonic)
    answer, gaps = verify(snapshot.reading, _explain(snapshot, ask), is_over)
    sees_nodes = snapshot.reading.sight.nodes
    remedies = (
        remedy
        for remedy in answer.remedies or ()
        if sees_nodes or remedy.by is not RemedyActor.CLUSTER_ADMIN  # these name nodes
    )
    return WithGaps(encode_remedies(tuple(remedies)), gaps)


def tell_story(snapshot: Snapshot, ask: Ask) -> WithGaps:
    return begin_story(snapshot, ask)()


def begin_story(snapshot: Snapshot, ask: Ask) -> Callable[[], WithGaps]:
    """Return what reads the API server and the store: nobody waits for that with his answer."""
    kind, namespace, name = (ask.parts[part] for part in ("kind", "namespace", "name"))
    source = snapshot.on_demand
    if source is None or KINDS.get(kind) not in {TargetKind.POD, TargetKind.POD_GROUP}:
        raise NothingThere(f"what happened to a {kind} is not told here")
    sight, subject = snapshot.reading.sight, Subject(str(KINDS[kind]), namespace, name)
    if not sight.sees_unit(namespace, name):
        target = Target(KINDS[kind], namespace, name)
        raise NothingThere(describe_missing(snapshot.reading, target, ()))

    def tell() -> WithGaps:
        try:
            story, gaps = source.tell(subject)
        except KubeError as error:
            raise NothingThere(f"it cannot be told now: {error}") from None
        if not story.traces:
            raise NothingThere(f"nothing of the name {name} exists in namespace {namespace}")
        unread = () if sight.events else (_EVENTS_UNREAD,)
        return WithGaps(encode(hide_others(story, sight)), (*gaps, *unread))

    return tell


_EVENTS_UNREAD: Final = AnswerGap("events", GapCause.NO_RIGHT, "what they say")
