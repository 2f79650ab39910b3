"""Answers to what would be: where there is room, what edits would change. Nothing is written."""

from collections.abc import Sequence
from time import monotonic
from typing import Any, Final

from koord.answers.edits import MOST_CHANGES, MOST_EDITS, EditError
from koord.answers.encoding import encode
from koord.answers.hidden_amounts import hide_in_what_if
from koord.answers.outcomes import view_outcomes
from koord.answers.outlook import limit_time
from koord.answers.reading import KindName
from koord.answers.room import RoomQuestion, find_room
from koord.answers.what_if import ask_what_if
from koord.core.defrag.shapes import MOST_GPUS, MOST_PODS, parse_shape
from koord.core.model.text import format_time
from koord.see.edit_forms import EditForms, split_subject
from koord.see.manifests import ServerDefaults
from koord.see.paging import InvalidQuery
from koord.see.route import Ask, NothingThere, WithGaps, refuse_hidden_nodes
from koord.see.snapshots import Snapshot

_PLANS_NEED: Final = (KindName.NODES, KindName.PODS, KindName.POD_GROUPS, KindName.QUOTAS)
"""What must be known as a whole before quotas and jobs are planned."""
_TRIAL_SECONDS: Final = 1.0
"""What trying may take, until it ends with what it has."""


def _refuse_gaps(snapshot: Snapshot, what: str, kinds: Sequence[str]) -> None:
    """Refuse to plan without all objects of some kinds. May raise ``NothingThere``."""
    unread = [kind for kind in kinds if snapshot.reading.extent_of(kind) is not None]
    if unread:
        raise NothingThere(f"{what} is not known: you may not list all {', '.join(unread)}")


def find_places(snapshot: Snapshot, ask: Ask) -> Any:
    needed = _PLANS_NEED if ask.body.get("quota") else (KindName.NODES,)
    _refuse_gaps(snapshot, "where there is room", needed)
    refuse_hidden_nodes(snapshot, "where there is room")
    wrong = sorted(ask.body.keys() - ROOM_BODY.keys())
    if wrong:
        raise InvalidQuery(f"{wrong[0]}: there is no such field; there are {', '.join(ROOM_BODY)}")
    texts = {name: ask.body.get(name, "") for name in ROOM_BODY}
    not_text = next((name for name, value in texts.items() if not isinstance(value, str)), "")
    if not_text:
        raise InvalidQuery(f"{not_text}: not a text")
    shape = parse_shape(texts["shape"])
    if shape is None:
        raise InvalidQuery(
            f"shape: {texts['shape']!r} is neither GPUs per pod nor pods x GPUs; at most "
            f"{MOST_PODS} pods of {MOST_GPUS} GPUs"
        )
    state = snapshot.reading.state
    is_there = texts["quota"] in state.quotas.catalog.registry.specs
    if texts["quota"] and not (is_there and snapshot.reading.sight.sees_quota(texts["quota"])):
        raise InvalidQuery(f"quota: there is no ElasticQuota {texts['quota']!r}")
    return encode(find_room(state, RoomQuestion(shape, texts["namespace"], texts["quota"])))


ROOM_BODY: Final = {
    "shape": "GPUs per pod, such as 8, or pods x GPUs, such as 4x8.",
    "namespace": "Of the pods, for the quota.",
    "quota": "Also say how many of the pods this quota lets start.",
}


def try_edits(snapshot: Snapshot, ask: Ask) -> Any:
    reading, written = snapshot.reading, ask.body.get("edits")
    is_followed = reading.is_followed
    _refuse_gaps(snapshot, "what would change", _PLANS_NEED)
    if ask.body.keys() - WHAT_IF_BODY.keys() or not isinstance(written, list) or not written:
        raise InvalidQuery("edits: give a list of them, such as {drain: {nodes: [n1]}}")
    if len(written) > MOST_EDITS:
        raise InvalidQuery(f"edits: these are {len(written)}, more than {MOST_EDITS}")
    forms = EditForms(reading.state, split_subject, lambda: _read_defaults(snapshot), reading.sight)
    try:
        edits = [edit for document in written for edit in forms.read(document)]
        limits = [limit_time(_TRIAL_SECONDS, monotonic) for _ in range(2)]
        before = snapshot.keep(
            "outcomes", lambda: view_outcomes(reading.state, limits[0], is_read=not is_followed)
        )
        answer = ask_what_if(reading, edits, limits[1], before, MOST_CHANGES)
    except EditError as error:
        raise InvalidQuery(f"edits: {error}") from None
    answer = hide_in_what_if(answer, reading.sight)
    return WithGaps(encode(answer), (*forms.gaps, *answer.gaps))


def _read_defaults(snapshot: Snapshot) -> ServerDefaults:
    source, namespace = snapshot.on_demand, snapshot.target.namespace
    if source is None:
        return ServerDefaults(namespace, format_time(snapshot.at), None)
    return source.read_defaults(namespace)


WHAT_IF_BODY: Final = {
    "edits": "What would be changed, in order; each is one key with its settings, as in "
    "koord what-if: submit with manifest; cordon, uncordon, drain and removeNodes with nodes; "
    "addNodes with like and count; delete with ref; patch with ref and merge.",
}
