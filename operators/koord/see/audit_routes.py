"""Answers about what was decided: the records of lately, and the report of the store."""

import logging
from collections.abc import Callable
from typing import Any, Final

from koord.answers.audit import to_text
from koord.answers.audit_analysis import AuditAnalysis, AuditScope
from koord.answers.audit_report import hide_names
from koord.answers.encoding import encode
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.hidden_amounts import hide_in_audit
from koord.answers.timeline import make_timeline
from koord.api.quantity import parse_age_seconds
from koord.core.usage.segments import Window
from koord.kube.errors import KubeError
from koord.see.paging import InvalidQuery, ListForm, texts_of
from koord.see.route import Ask, NothingThere, WithGaps
from koord.see.snapshots import Gaps, Records, Snapshot
from koord.store.analysis import StoredAnalysis
from koord.store.errors import StoreError
from koord.store.reading import MOST_MS

log = logging.getLogger(__name__)

MOST_ENTRIES: Final = 4000
"""Things that happened, of one answer: the last ones."""


def report_audit(snapshot: Snapshot, ask: Ask) -> WithGaps:
    return begin_audit_report(snapshot, ask)()


def begin_audit_report(snapshot: Snapshot, ask: Ask) -> Callable[[], WithGaps]:
    sight, params, source = snapshot.reading.sight, ask.params, snapshot.on_demand
    seconds = parse_age_seconds(params.get("since", "24h"))
    if seconds is None or seconds * 1000 > MOST_MS:
        raise InvalidQuery("since: is not an age up to 31d, such as 90m, 24h or 7d")
    scope = AuditScope(params.get("namespace", ""), params.get("quota", ""))
    if scope.namespace and not sight.sees(scope.namespace):
        raise NothingThere(f"there is no namespace {scope.namespace}, or you may not see it")
    if not (sight.amounts or scope.namespace):
        raise InvalidQuery("namespace: name one of yours; sums over all of them are not shown")
    if scope.quota and not sight.sees_quota(scope.quota):
        raise NothingThere(f"there is no ElasticQuota {scope.quota}, or you may not see it")
    analyse = None if source is None else source.analyse
    window = Window(int((snapshot.at - seconds) * 1000), int(snapshot.at * 1000))

    def report() -> WithGaps:
        try:
            stored = _analyse_nothing(window, scope) if analyse is None else analyse(seconds, scope)
        except StoreError as error:
            log.warning("The store cannot be read", extra={"problem": str(error)})
            stored = _analyse_nothing(window, scope)
        seen = hide_in_audit(hide_names(stored.report, sight), sight)
        return WithGaps(encode(seen), stored.gaps)

    return report


def _analyse_nothing(window: Window, scope: AuditScope) -> StoredAnalysis:
    gap = AnswerGap("records of decisions", GapCause.NO_FEED, "where waiting time went")
    return StoredAnalysis(AuditAnalysis(window, scope).report(), (gap,))


AUDIT_PARAMS: Final = {
    "since": "How far to look back: 90m, 24h or 7d; 31d at most, 24h by default.",
    "namespace": "Only units of this namespace.",
    "quota": "Only units of this quota.",
}


def list_decisions(snapshot: Snapshot, _: Ask) -> Any:
    records, gaps = _list_records(snapshot)
    entries = make_timeline(snapshot.reading, snapshot.target, records)
    if len(entries) > MOST_ENTRIES:
        before = AnswerGap(
            "older records",
            GapCause.TOO_MANY,
            f"what was before {to_text(entries[-MOST_ENTRIES].at)}",
        )
        gaps = (*gaps, before)
    return WithGaps([encode(entry) for entry in entries[-MOST_ENTRIES:]], gaps)


def _list_records(snapshot: Snapshot) -> tuple[Records, Gaps]:
    unread = AnswerGap("records of decisions", GapCause.NO_FEED, "what was decided")
    if snapshot.on_demand is None:
        return (), (unread,)
    try:
        return snapshot.on_demand.list_records()
    except KubeError:
        return (), (unread,)


DECISIONS: Final = ListForm(
    key=lambda row: row["key"],
    sorts={"at": lambda row: row["at"]},
    filters={
        "namespace": lambda row: (row["ref"].rpartition("/")[0],),
        "kind": texts_of("kind"),
        "what": texts_of("what"),
        "class": texts_of("class"),
    },
    time="at",
)
