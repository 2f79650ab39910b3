"""What a stream can follow: one route with its parameters, and how its answer changes.

``queue(class=Room)``, ``overview``, ``explanation(namespace=a,kind=podgroup,name=b)``. The whole
answer comes first (of a list: its first page); then rows that are new, changed or gone, or the
value as a whole if it changed, of a large one what of it changed. Differences are those of
documents: no route knows of streams. Knows no connection, and nobody who asks.
"""

import re
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from koord.answers.envelope import AnswerHead, EnvelopeDocument
from koord.see.paging import Entry, InvalidQuery, ListQuery, Row, cut_page, parse_query, select
from koord.see.patches import find_patch
from koord.see.route import Ask, Route, WithGaps, head_for, wrap
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot

MOST_TOPICS: Final = 8
MOST_TOPIC: Final = 1024
"""Characters."""
_TOPIC: Final = re.compile(r"(\w+)(?:\((.*)\))?", re.DOTALL)
_BY_NAME: Final = {
    route.answer.lower(): route
    for route in ROUTES
    if route.method == "GET" and route.begin is None and route.answer != "Remedies"
}
"""What is quick enough to be computed again whenever anything has changed."""


@dataclass(slots=True)
class Topic:
    """One answer, and what was told of it last."""

    name: str
    route: Route
    ask: Ask
    query: ListQuery | None
    instance: str
    head: AnswerHead | None = None
    """Of the last answer; None if nothing was told yet."""
    _answer: WithGaps = field(default_factory=lambda: WithGaps(None))
    """The last one; of a list its first page."""
    _rows: dict[str, tuple[Entry, Row]] = field(default_factory=dict)
    """Of the first page of a list, by key, with what each row was made of."""
    _behind: Sequence[Entry] = ()
    """What is behind the first page, as it was last: of it it is only told that it changed."""

    @property
    def namespace(self) -> str:
        """The one that it is about; empty if it is about no single one."""
        filters = {} if self.query is None else self.query.filters
        return self.ask.parts.get("namespace", "") or filters.get("namespace", "")

    @property
    def whole(self) -> EnvelopeDocument:
        """The last answer in its envelope; of a list the first page."""
        assert self.head is not None, "something was told"  # noqa: S101 - for the type checker
        return wrap(self.head, self._answer)

    def hello(self, snapshot: Snapshot) -> EnvelopeDocument:
        """Begin with an answer, and return it in its envelope."""
        self._take(snapshot)
        return self.whole

    def changes(self, snapshot: Snapshot) -> dict[str, Any] | None:
        """Return what differs from what was told; None if nothing does.

        Of a list the first page is followed. Without ``order`` its rows that are not gone have the
        order that they had. If only rows behind it differ nothing is set or gone: who has read
        those reads them again.
        """
        answer, rows, behind = self._answer, self._rows, self._behind
        self._take(snapshot)
        before, value = answer.value, self._answer.value
        if self.route.form is None:
            return None if before == value else find_patch(before, value) or {"value": value}
        changed = [row for key, (_, row) in self._rows.items() if _row_of(rows, key) != row]
        gone = [key for key in rows if key not in self._rows]
        body = {
            "set": changed,
            "gone": gone,
            "total": value["total"],
            "continue": value["continue"],
        }
        order = list(self._rows)
        if order != [key for key in rows if key in self._rows]:
            return {**body, "order": order}
        is_same = not changed and not gone and before["total"] == value["total"]
        return None if is_same and behind == self._behind else body

    def differs_in_head(self, head: AnswerHead) -> bool:
        """Whether the whole answer has to be told: who leads, or what is missing, has changed."""
        return self.head is None or _circumstances_of(self.head) != _circumstances_of(head)

    def _take(self, snapshot: Snapshot) -> None:
        """Note what is told now. A row whose entry is the same object is not written again."""
        answer = self.route.answer_from(snapshot, self.ask)
        form, query, rows = self.route.form, self.query, self._rows
        self.head = make_head(self, snapshot)
        if form is None or query is None:
            self._answer = answer
            return
        chosen = select(answer.value, query, form)
        shown, self._behind = chosen[: query.limit], chosen[query.limit :]
        written = {id(entry): row for entry, row in rows.values()}

        def write(entry: Entry) -> Row:
            row = written.get(id(entry))
            return form.write(entry) if row is None else row

        # Rows of which fields are left out say less than what is to be written.
        writer = form if query.fields else replace(form, write=write)
        page = cut_page(chosen, query, writer, self.instance)
        pairs = zip(shown, page["items"], strict=True)
        self._rows = dict(zip(map(form.key, shown), pairs, strict=True))
        self._answer = replace(answer, value=page)


def _row_of(rows: dict[str, tuple[Entry, Row]], key: str) -> Row | None:
    return rows[key][1] if key in rows else None


def make_head(topic: Topic, snapshot: Snapshot) -> AnswerHead:
    return head_for(topic.route, snapshot, topic.ask, topic.instance, time.time())


def _circumstances_of(head: AnswerHead) -> Hashable:
    return head.leader, head.term, head.gaps


def parse_topic(text: str, instance: str) -> Topic:
    """Read ``name(key=value,…)``. Raises ``InvalidQuery``."""
    match = _TOPIC.fullmatch(text) if len(text) <= MOST_TOPIC else None
    route = _BY_NAME.get(match[1]) if match else None
    if match is None or route is None:
        topics = ", ".join(_BY_NAME)
        raise InvalidQuery(
            f"topic: {text[:64]!r} is none of {topics}, with (key=value,…) behind it"
        )
    pairs = [pair.partition("=") for pair in (match[2] or "").split(",") if pair]
    given = {key.strip(): value.strip() for key, _, value in pairs}
    names = set(re.findall(r"\{(\w+)\}", route.path))
    missing = sorted(names - given.keys())
    if missing:
        raise InvalidQuery(f"topic: {route.answer.lower()} needs {', '.join(missing)}")
    params = {key: value for key, value in given.items() if key not in names}
    if "continue" in params:
        raise InvalidQuery("topic: of a list its first page is followed, so there is no continue")
    if route.form is None and params:
        raise InvalidQuery(f"topic: {route.answer.lower()} has no {next(iter(params))}")
    query = parse_query(params, route.form, instance) if route.form is not None else None
    return Topic(text, route, Ask({key: given[key] for key in names}), query, instance)
