"""Tells what happened to a pod, gang or Job: what ``koord history`` does.

Not imported for ``--help``.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from koord.answers.audit import to_ms, to_text
from koord.answers.encoding import encode
from koord.answers.envelope import AnswerGap, AnswerHead, AnswerSource, GapCause
from koord.answers.happenings import Happening, SeenObjects, StorySource, Subject, tell_record
from koord.answers.leaders import Leader
from koord.answers.reading import Target, TargetNotFoundError
from koord.answers.story import Story, find_decision, make_story, sum_phases
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.connection import open_client
from koord.cli.feed_records import FeedRecords, find_address, read_feed
from koord.cli.find_target import find_target
from koord.cli.leases import read_leader
from koord.cli.output import make_table, print_in
from koord.cli.story_objects import read_objects
from koord.core.model.text import format_age, named
from koord.kube.client import Client
from koord.kube.errors import KubeError
from koord.store.errors import StoreError
from koord.store.reading import StoreReader

_BAR: Final = 24
_SOURCES: Final = {
    StorySource.AUDIT: "records of the leader",
    StorySource.HISTORY: "the history of the PodGroup",
    StorySource.CONDITION: "conditions",
    StorySource.EVENT: "events",
}
_RECORDS: Final = "records of decisions"
_KNOWN: Final = frozenset({"", "Pod", "PodGroup", "Job", "StatefulSet", "ReplicaSet"})
"""Kinds that objects and records are searched for; any other stands for what is below it."""


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """What was asked; ``since`` are seconds (0: all), ``at`` a time (empty: the whole story)."""

    kind: str
    namespace: str
    name: str
    since: float = 0.0
    at: str = ""
    feed: str = ""
    store: Path | None = None
    """A file to read records from, instead of the feed."""


@dataclass(frozen=True, slots=True)
class _Sources:
    """All that a story is made of."""

    subject: Subject
    leader: Leader | None
    feed: FeedRecords
    seen: SeenObjects
    problem: str = ""
    """Why what was asked for was not found among the objects."""


def show(request: HistoryRequest, kubeconfig: str, context: str, output: Output) -> None:
    try:
        sources = asyncio.run(_read(request, kubeconfig, context))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    now = time.time()
    feed, subject = sources.feed, sources.subject
    if feed.problem:
        warn(f"{feed.problem}: what follows is what objects say, which is less")
    if request.at:
        _show_decision(request, sources, now, output)
        return
    story = make_story(subject, feed.records, sources.seen, int(now * 1000))
    if not story.traces and sources.problem:
        fail(sources.problem, ExitCode.USAGE)
    if not story.traces:
        fail(
            f"nothing of the name {subject.name} exists in namespace {subject.namespace}, and no "
            f"record tells of it{_tell_oldest(feed)}",
            ExitCode.USAGE,
        )
    story = story.after(int((now - request.since) * 1000) if request.since else 0)
    print_in(
        output,
        _head("Story", sources, now),
        document=lambda: encode(story),
        names=lambda: (subject.key,),
        text=lambda: make_parts(story, now),
    )


def read_story(
    request: HistoryRequest, kubeconfig: str, context: str
) -> tuple[Story, tuple[AnswerGap, ...]]:
    """Return what happened to an object, and what is not known. May raise ``KubeError``."""
    sources = asyncio.run(_read(request, kubeconfig, context))
    now = int(time.time() * 1000)
    story = make_story(sources.subject, sources.feed.records, sources.seen, now)
    return story, _find_gaps(sources.feed)


def list_records(
    given: str, kubeconfig: str, context: str
) -> tuple[tuple[Mapping[str, Any], ...], tuple[AnswerGap, ...]]:
    """Return all records of decisions, perhaps of a given address, and what is not known.

    May raise ``KubeError``.
    """

    async def read() -> FeedRecords:
        async with open_client(kubeconfig, context) as (client, _):
            leader = await read_leader(client)
        return await read_feed(find_address(leader, given), leader)

    feed = asyncio.run(read())
    return feed.records, _find_gaps(feed)


def _show_decision(request: HistoryRequest, sources: _Sources, now: float, output: Output) -> None:
    decision = find_decision(sources.feed.records, sources.subject, to_ms(request.at) or 0)
    record = decision.record
    happening = None if record is None else tell_record(record)
    if happening is None and output is Output.TEXT:
        fail(
            f"no record tells what was decided about {sources.subject.key} by then"
            f"{_tell_oldest(sources.feed)}",
            ExitCode.USAGE,
        )
    happenings = () if happening is None else (happening,)
    print_in(
        output,
        _head("Decision", sources, now),
        document=lambda: encode(decision),
        names=lambda: (sources.subject.key,),
        text=lambda: make_happenings(happenings, now),
    )


def _head(answer: str, sources: _Sources, now: float) -> AnswerHead:
    leader, feed = sources.leader, sources.feed
    return AnswerHead(
        answer,
        now,
        AnswerSource.REPORTED if feed.problem else AnswerSource.STORED,
        None if leader is None else leader.holder or None,
        None if leader is None else leader.term,
        _find_gaps(feed),
    )


def _find_gaps(feed: FeedRecords) -> tuple[AnswerGap, ...]:
    if feed.problem:
        return (AnswerGap(_RECORDS, GapCause.NO_FEED, "what was decided"),)
    if feed.records and feed.records[0].get("kind") == "Gap":
        before = f"what was before{_tell_oldest(feed)}"
        return (AnswerGap(_RECORDS, GapCause.NOT_STORED, before),)
    return ()


def _tell_oldest(feed: FeedRecords) -> str:
    """Say since when there are records, if there are any."""
    oldest = next((record for record in feed.records if record.get("kind") != "Gap"), None)
    return "" if oldest is None else f" (records go back to {oldest.get('at')})"


async def _read(request: HistoryRequest, kubeconfig: str, context: str) -> _Sources:
    async with open_client(kubeconfig, context) as (client, access):
        typed = Subject(request.kind, request.namespace or access.namespace, request.name)
        subject, problem = await _find_subject(client, typed)
        leader = await read_leader(client)
        if request.store is not None:
            feed = _read_store(request.store, subject)
        else:
            feed = await read_feed(find_address(leader, request.feed), leader)
        return _Sources(subject, leader, feed, await read_objects(client, subject), problem)


def _read_store(path: Path, subject: Subject) -> FeedRecords:
    try:
        scan = StoreReader(path).story(subject.namespace, subject.name)
    except StoreError as error:
        return FeedRecords(problem=str(error))
    return FeedRecords(scan.rows)


async def _find_subject(client: Client, typed: Subject) -> tuple[Subject, str]:
    """Return the gang or pod below an owner of any kind, or why there is none.

    One that is gone may be in the records: whatever has its name.
    """
    if typed.kind in _KNOWN:
        return typed, ""
    try:
        written = Target(typed.kind, typed.namespace, typed.name)
        target = (await find_target(client, written, time.time())).target
    except TargetNotFoundError as error:
        return Subject("", typed.namespace, typed.name), str(error)
    return Subject(str(target.kind), target.namespace, target.name), ""


def make_parts(story: Story, now: float) -> Iterator[RenderableType]:
    """Yield a story as text; ages are relative to ``now``."""
    subject = story.subject
    title = Text(f"{subject.kind} {subject.key}".strip(), style="bold")
    title.append(f" ({named(story.traces)})" if story.traces else "", style="dim")
    yield title
    if story.now:
        yield Text(f"  {story.now}")
    if story.phases:
        yield ""
        yield from _make_phases(story)
    yield ""
    yield from make_happenings(story.happenings, now)
    if story.sources:
        yield ""
        yield f"From {', '.join(_SOURCES[source] for source in story.sources)}."


def _make_phases(story: Story) -> Iterator[RenderableType]:
    total = max(1, story.total_ms)
    about = "About where" if story.is_approximate else "Where"
    begin = "" if story.created is None else f", since {to_text(story.created)[:19]}Z"
    yield Text(f"{about} its time went: {format_age(total / 1000)}{begin}", style="bold")
    table = make_table("PHASE", "TIME", "SHARE", "", right=("TIME", "SHARE"))
    for span in sum_phases(story.phases):
        bar = "█" * max(1, round(_BAR * span.ms / total))
        table.add_row(span.phase, _format_ms(span.ms), f"{round(100 * span.ms / total)} %", bar)
    yield table


def _format_ms(ms: int) -> str:
    return format_age(ms / 1000) if ms >= 10_000 else f"{ms / 1000:.1f}s"


def make_happenings(happenings: Sequence[Happening], now: float) -> Iterator[RenderableType]:
    """Yield what happened as a table, the last first."""
    if not happenings:
        yield "Nothing is known to have happened to it."
        return
    table = make_table("AGO", "WHAT", "WHY", "FOR", right=("AGO",))
    for happening in reversed(happenings):
        age = format_age(now - happening.at / 1000)
        table.add_row(age, happening.what, happening.text, happening.by)
    yield table
