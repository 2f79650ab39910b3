"""Reads the cluster and prints why something waits: what ``koord explain`` does.

The text has state, reason, advice, and the numbers behind them. Colours and line breaks suit the
terminal; other output is plain and has one line per statement. Not imported for ``--help``, which
needs none of it.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

import msgspec
import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from koord.answers.encoding import encode
from koord.answers.envelope import AnswerHead
from koord.answers.explain import PlacementState, ShapeOffers
from koord.answers.explanation import Explained, Explanation, GangAnswer, PodPlace
from koord.answers.gaps import head_of
from koord.answers.happenings import tell_episodes
from koord.answers.queued_jobs import QueuedJobView, find_queued_job
from koord.answers.reading import Reading, Target, TargetKind, TargetNotFoundError
from koord.answers.remedy_search import verify
from koord.answers.reports import Reported, ReportedReason
from koord.answers.why import make_answer
from koord.api import Compat
from koord.cli.cluster import read_cluster, refuse_without_pods
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.connection import open_client
from koord.cli.find_target import TargetLookup, find_target, follow_owners
from koord.cli.history_view import make_happenings
from koord.cli.job_state import COUNTED, JobState, find_of_pod
from koord.cli.leases import read_leader
from koord.cli.output import count_of, make_table, print_in
from koord.cli.queue_view import make_time_limit
from koord.cli.remedies_view import make_remedies
from koord.cli.topology_view import MOST_DOMAINS, make_network
from koord.core.engine.cause import Cause
from koord.core.engine.reasons import CauseCount
from koord.core.gang.reasons import InvalidAnnotation
from koord.core.model import units
from koord.core.model.gang_history import find_eviction
from koord.core.model.reasons import RefusedByScheduler
from koord.core.model.text import format_age, named
from koord.core.model.units import approximate, tell_amount
from koord.core.plugins.causes import NodeCause
from koord.core.plugins.node_diagnosis import NodeOffer, rank_offer
from koord.kube.client import Client
from koord.kube.errors import KubeError

if TYPE_CHECKING:
    from koord.kube.leader_report import LeaderReport


@dataclass(frozen=True, slots=True)
class Question:
    """What was typed; an empty ``namespace`` means that of the context."""

    kind: TargetKind | str
    namespace: str
    name: str
    kubeconfig: str = ""
    context: str = ""
    compat: Compat = Compat.NONE


@dataclass(frozen=True, slots=True)
class Shown:
    """What of an answer is shown, and how."""

    output: Output = Output.TEXT
    all_nodes: bool = False
    with_history: bool = False
    as_exit_code: bool = False
    verifies: bool = False
    """Whether remedies are tried."""


def ask(question: Question, shown: Shown) -> None:
    now = time.time()
    try:
        lookup, reading = asyncio.run(_read(question, now))
        answer = _answer(lookup, reading, now)
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    except TargetNotFoundError as error:
        fail(str(error), ExitCode.USAGE)
    for warning in answer.warnings:
        warn(warning)
    head = _head_of(reading, answer)
    if shown.verifies and reading is not None:
        answer, gaps = verify(reading, answer, make_time_limit())
        head = replace(head, gaps=(*head.gaps, *gaps))
    most = None if shown.all_nodes else BEST_NODES
    print_in(
        shown.output,
        head,
        document=lambda: encode(answer),
        names=lambda: (f"{answer.target.kind.lower()}/{answer.target.name}",),
        text=lambda: make_parts(answer, now, most, with_history=shown.with_history),
    )
    if shown.as_exit_code and answer.standing not in _WELL:
        raise typer.Exit(ExitCode.NOT_WELL)


def _head_of(reading: Reading | None, answer: Explanation) -> AnswerHead:
    if reading is None:  # it is about a Job alone
        return AnswerHead("Explanation", time.time())
    return head_of("Explanation", reading, answer.target)


def ask_version(kubeconfig: str, context: str) -> str:
    try:
        return asyncio.run(_read_version(kubeconfig, context))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)


async def _read_version(kubeconfig: str, context: str) -> str:
    async with open_client(kubeconfig, context) as (client, _):
        return (await client.get("/version", _Version)).git_version


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


async def _read(question: Question, now: float) -> tuple[TargetLookup, Reading | None]:
    """Read the cluster, unless the Job that was asked for is all that there is."""
    async with open_client(question.kubeconfig, question.context) as (client, access):
        typed = Target(question.kind, question.namespace or access.namespace, question.name)
        lookup = await find_target(client, typed, now)
        if lookup.job is not None and lookup.job.is_suspended and await _resumes_jobs(client):
            reading = await read_cluster(client, replace(typed, kind=TargetKind.POD_GROUP))
            queued = find_queued_job(reading.state, typed.namespace, typed.name)
            if queued is not None:
                return _say_queued(
                    lookup, lookup.job, queued
                ), reading if not queued.reason else None
        if lookup.job is not None and lookup.target == lookup.typed:  # it stands for nothing
            return lookup, None
        compat = question.compat is Compat.KOORDINATOR
        reading = await read_cluster(client, lookup.target, compat=compat)
        if typed.kind is TargetKind.POD and _is_gone(reading, typed):
            await _refuse_evicted(client, typed, now)
        return _follow_owners(lookup, reading)


def _follow_owners(lookup: TargetLookup, reading: Reading) -> tuple[TargetLookup, Reading]:
    """Answer for the gang that owners say, if an owner was asked for and its pods name none."""
    gang = follow_owners(lookup.typed, lookup.target, reading.state)
    if gang is lookup.target:
        return lookup, reading
    # What was read of the pod is not said of its gang.
    return replace(lookup, target=gang), replace(reading, details=None)


async def _resumes_jobs(client: Client) -> bool:
    leader = await read_leader(client)
    report = cast("LeaderReport | None", leader.report) if leader is not None else None
    return report is not None and report.suspend


def _say_queued(lookup: TargetLookup, job: JobState, queued: QueuedJobView) -> TargetLookup:
    """Return the target that stands for a Job that the operators resume once it has room."""
    note = f"Job {queued.job.namespace}/{queued.job.name} is suspended until all of its pods fit."
    reason = queued.reason
    more = () if reason is None else (f"{reason.text()[:1].upper()}{reason.text()[1:]}.",)
    advice = () if reason is None else reason.advice()
    job = replace(job, notes=(note, *more), advice=advice)
    return replace(lookup, target=lookup.typed if reason else queued.target, job=job)


def _is_gone(reading: Reading, target: Target) -> bool:
    return reading.state.pod_by_key(target.key) is None and target.key not in reading.rejected


async def _refuse_evicted(client: Client, pod: Target, now: float) -> None:
    """Say what became of a pod that does not exist, if events tell that it was evicted."""
    event = await find_of_pod(client, pod.namespace, pod.name)
    if event is not None:
        raise TargetNotFoundError(
            f"there is no Pod {pod.name} in namespace {pod.namespace}: {event.text(now)} (event "
            f"{event.reason})"
        )


def _answer(lookup: TargetLookup, reading: Reading | None, now: float) -> Explanation:
    if reading is None:
        return _add_job(Explanation(lookup.typed, PlacementState.WAITING), lookup)
    refuse_without_pods(reading, lookup.target)
    try:
        return _add_job(make_answer(reading, lookup.target, now), lookup)
    except TargetNotFoundError:
        if lookup.job is None:
            raise
    return _answer(lookup, None, now)


def _add_job(answer: Explanation, lookup: TargetLookup) -> Explanation:
    """Add the state of a Job without living pods; without a gang or a pod it is the answer."""
    job = lookup.job
    if job is None:
        return replace(answer, notes=(*lookup.notes, *answer.notes)) if lookup.notes else answer
    is_all = answer.target is lookup.typed
    was_evicted = job.has_failed and find_eviction(answer.episodes) is not None
    return replace(
        answer,
        standing=job.standing if is_all else answer.standing,
        notes=(*job.notes, *((COUNTED,) if was_evicted and COUNTED not in job.notes else ())),
        # Of a gang it is about missing members, which this Job does not create.
        advice=(*job.advice, *(answer.advice if answer.target.kind is TargetKind.POD else ())),
    )


BEST_NODES: Final = 20
MAX_SHAPES: Final = 5
"""Kinds of pods for which nodes are listed."""
_CAUSES: Final = {
    NodeCause.UNSCHEDULABLE: "cordoned",
    NodeCause.TAINT: "taint",
    NodeCause.SELECTOR: "not selected",
    NodeCause.HOST_PORT: "host port taken",
    NodeCause.VOLUME_IN_USE: "claim in use",
    NodeCause.VOLUME_AFFINITY: "out of reach of a volume",
    NodeCause.VOLUME_ZONE: "volume elsewhere",
    NodeCause.SPREAD_LABEL: "spread",
    NodeCause.SPREAD: "spread",
    NodeCause.POD_AFFINITY: "affinity",
    NodeCause.POD_ANTI_AFFINITY: "anti-affinity",
    NodeCause.EXISTING_ANTI_AFFINITY: "anti-affinity of another pod",
}

_STYLES: Final = {
    PlacementState.WAITING: "bold yellow",
    PlacementState.PLACEABLE: "bold green",
    PlacementState.HELD_UP: "bold red",
    PlacementState.BOUND: "bold green",
    PlacementState.DEGRADED: "bold red",
    PlacementState.BEING_EVICTED: "bold yellow",
    PlacementState.ENDED: "bold",
    PlacementState.NOT_OURS: "bold magenta",
    PlacementState.NOTHING_WAITS: "bold green",
}
_SENTENCES: Final = {
    PlacementState.PLACEABLE: (
        "There is room for it: the operators place it in their next cycle, unless pods with "
        "precedence take the room."
    ),
    PlacementState.BEING_EVICTED: "The operators evict it, and it is still there.",
    PlacementState.ENDED: "It has ended or is being deleted.",
    PlacementState.NOTHING_WAITS: "All members have nodes.",
}
_TITLES: Final = {PlacementState.NOTHING_WAITS: "Placed"}
"""States with another name in JSON, where values never change."""

_WELL: Final = {PlacementState.BOUND, PlacementState.ENDED, PlacementState.NOTHING_WAITS}
"""Exit code 0 with ``--exit-code``."""
_NUMBER: Final = re.compile(r"(?<![A-Za-z0-9_.-])(?<![A-Za-z]/)(\d+(?:[.,]\d+)*)")
"""A number in a message that is no part of a name."""
_WITH_REASON: Final = {PlacementState.WAITING, PlacementState.DEGRADED}
_WITH_CODE: Final = {*_WITH_REASON, PlacementState.HELD_UP}
_PLANNED: Final = {TargetKind.POD, TargetKind.POD_GROUP, TargetKind.RESERVATION}
_TO_COME: Final = {*_WITH_CODE, PlacementState.PLACEABLE}


def make_parts(
    answer: Explanation, now: float, most_nodes: int | None, *, with_history: bool = False
) -> Iterator[RenderableType]:
    """Yield an answer as text; ages are relative to ``now``; without ``most_nodes`` all of them."""
    yield _make_title(answer, now)
    yield from map(_indent, _make_statements(answer, now))
    if answer.gang is not None:
        yield ""
        yield from _make_gang(answer.gang)
    if answer.network is not None:
        yield ""
        yield from make_network(answer.network, None if most_nodes is None else MOST_DOMAINS)
    if with_history:
        yield ""
        yield from make_happenings(tell_episodes(answer.episodes), now)
    if answer.advice:
        yield ""
        yield Text("What would help", style="bold")
        yield from (_indent(f"- {sentence}") for sentence in answer.advice)
    if answer.remedies is not None:
        yield ""
        yield from make_remedies(answer.remedies)
    if answer.add:
        yield ""
        yield _indent(answer.add.rstrip(), 4)
    for offers in answer.offers[:MAX_SHAPES]:
        yield ""
        yield from make_offers(offers, most_nodes)
    if len(answer.offers) > MAX_SHAPES:
        yield ""
        yield f"{len(answer.offers) - MAX_SHAPES} more kinds of pods: see --output json."
    if answer.not_asked:
        yield ""
        yield f"For {count_of(answer.not_asked, 'other member')} no node was asked."


def _make_title(answer: Explanation, now: float) -> Text:
    title = Text()
    title.append(f"{answer.target.kind} {answer.target.title} ", style="bold")
    title.append(_TITLES.get(answer.standing, answer.standing), style=_STYLES[answer.standing])
    if answer.reason is not None and answer.standing in _WITH_CODE:
        title.append(f" {answer.reason.reason.code}", style="bold")
    if answer.history.since:
        title.append(f" since {_format_since(answer.history.since, now)}")
    return title


def _make_statements(answer: Explanation, now: float) -> Iterator[str]:
    yield from answer.notes
    yield from _make_reasons(answer, now)
    if answer.standing is PlacementState.PLACEABLE and not answer.is_led:
        yield "There is room for it, and no operators run to place it."
    elif answer.standing in _SENTENCES and answer.target.kind in _PLANNED:
        yield _SENTENCES[answer.standing]
    is_refused = answer.reason and isinstance(answer.reason.reason, RefusedByScheduler)
    if answer.place is not None and not is_refused:
        yield _describe_place(answer.place, answer.target)
    if answer.standing in _TO_COME and answer.is_reported_on:
        yield from _compare_report(answer, now)


def _make_reasons(answer: Explanation, now: float) -> Iterator[str]:
    if answer.reason is not None:
        yield answer.reason.message
        if isinstance(answer.reason.reason, ReportedReason):
            yield "That is what the operators report; numbers in it may be some minutes old."
            if any(offers.fit for offers in answer.offers):
                yield "Only they know it: the nodes below are shown without it."
    elif answer.standing is PlacementState.WAITING and not answer.notes:
        yield "The reason is not known from here."
    if answer.standing in _WITH_REASON and (evicted := find_eviction(answer.episodes)) is not None:
        yield f"{format_age(now - evicted.time)} ago it was {evicted.text()}"
    if answer.waits is not None and answer.waits.reason.is_placed:
        yield "There is room for the members that wait."
    elif answer.waits is not None:
        yield f"{answer.waits.reason.code}: {answer.waits.message}"


def _describe_place(place: PodPlace, target: Target) -> str:
    if target.kind is TargetKind.RESERVATION:
        return f"It holds room on node {place.node}; koord reservation list shows who uses it."
    where = f"It is bound to node {place.node}" if place.is_bound else f"It has node {place.node}"
    if not place.plan_id:
        return f"{where}; another scheduler placed it."
    plan = f"{where} by plan {place.plan_id}"
    if place.member_count > 1:
        plan += f", with {place.member_count} members of {place.group}"
    return f"{plan}." if place.is_bound else f"{plan}, and its scheduler may bind it."


def _compare_report(answer: Explanation, now: float) -> Iterator[str]:
    """Yield what the operators reported, if it differs."""
    reported, own = answer.history.reported, answer.reason
    if reported is None:
        if answer.is_led:
            yield (
                "The operators have not reported on it. If that lasts longer than a few seconds, "
                "they are not running or cannot reach the cluster. An object that is as large as "
                "etcd takes has events only."
            )
        return
    numbers = None if own is None else _compare_numbers(own, reported)
    if numbers is not None:
        if numbers:
            yield f"The operators reported it with other numbers: {numbers}."
        return
    since = f" since {_format_since(reported.since, now)}" if reported.since else ""
    does = "report" if answer.is_led else "reported"
    yield f"The operators {does}{since}: {reported.reason}: {reported.message}"


def _compare_numbers(own: Explained, reported: Reported) -> str | None:
    """Return which numbers of the same text differ; None if more than numbers does."""
    here, there = _NUMBER.split(own.message), _NUMBER.split(reported.message)
    if own.reason.code != reported.reason or here[::2] != there[::2]:
        return None
    pairs = dict.fromkeys(zip(there[1::2], here[1::2], strict=True))
    return named([f"{theirs} instead of {ours}" for theirs, ours in pairs if ours != theirs])


def _make_gang(gang: GangAnswer) -> Iterator[RenderableType]:
    if gang.group:
        table = make_table("GANG", "PRESENT", "NEEDED", right={"PRESENT", "NEEDED"})
        for count in gang.group:
            style = "" if count.present >= count.min_member else "yellow"
            table.add_row(count.gang, Text(str(count.present), style), str(count.min_member))
        yield table
    members = gang.members
    counts = {
        "present": members.present,
        "bound": members.bound,
        "running": members.running,
        "succeeded": members.succeeded,
        "failed": members.failed,
        "terminating": members.terminating,
    }
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    place = ""
    if gang.plan_id:
        place = f"; plan {gang.plan_id} on {count_of(len(gang.nodes), 'node')}"
    elif gang.by_others:
        whom = "them" if gang.by_others == members.bound else f"{gang.by_others} of them"
        place = f"; another scheduler placed {whom}"
    yield f"Members of {gang.key}: {shown or 'none'}{place}"
    for value in gang.ignored:
        yield f"Cannot be used: {InvalidAnnotation((value,)).text()}"


def _indent(text: str, by: int = 2) -> Padding:
    return Padding(Text(text), (0, 0, 0, by), expand=False)


def _format_since(time: str, now: float) -> str:
    """Write ``2026-01-01T00:00:00Z (4m ago)``."""
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return time
    age = now - (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return f"{time} ({format_age(age)} ago)"


def make_offers(offers: ShapeOffers, most: int | None) -> Iterator[RenderableType]:
    """Yield the fit of one kind of pods on the nodes, ``most`` of them one by one."""
    willing = sum(offer.pods > 0 for offer in offers.nodes)
    waiting, all_nodes = count_of(offers.pods, "waiting pod"), count_of(len(offers.nodes), "node")
    head = f"{waiting} asking for {_describe_requests(offers)}"
    yield f"{head}: room for {offers.fit} on {willing} of {all_nodes}"
    if not offers.nodes:
        return
    nodes = sorted(offers.nodes, key=rank_offer)
    table = make_table("NODE", "FIT", "IN THE WAY", right={"FIT"})
    for offer in nodes[:most]:
        fit = Text(str(offer.pods), style="green" if offer.pods else "")
        table.add_row(offer.node, fit, describe_shortage(offer))
    yield table
    if most is not None and len(nodes) > most:
        yield _summarize(nodes[most:])


def describe_shortage(offer: NodeOffer) -> str:
    """Return what keeps pods off a node: what closes it, and what it has too little of."""
    closed = ""
    if offer.cause is not None and offer.cause is not NodeCause.RESOURCE:
        closed = _CAUSES.get(offer.cause, str(offer.cause))
    if closed and offer.detail:
        closed += f" {{{offer.detail}}}"
    short = [
        f"{resource} {approximate(resource, requested)} asked, "
        f"{approximate(resource, free, down=True)} free"
        for resource, requested, free in offer.short
    ]
    return "; ".join(([closed] if closed else []) + short)


def _summarize(hidden_offers: Sequence[NodeOffer]) -> str:
    counts: Counter[tuple[Cause, str, str]] = Counter()
    for offer in hidden_offers:
        counts.update(_causes_of(offer))
    texts = [
        CauseCount(cause, nodes, resource, detail).text()
        for (cause, resource, detail), nodes in counts.most_common(5)
    ]
    if room := sum(offer.pods for offer in hidden_offers):
        texts.insert(0, f"room for {room}")
    listed = f": {', '.join(texts)}" if texts else ""
    return f"… and {count_of(len(hidden_offers), 'more node')}{listed} (--all-nodes lists them)"


def _causes_of(offer: NodeOffer) -> Iterable[tuple[Cause, str, str]]:
    if offer.cause is None:
        return []
    if offer.cause is NodeCause.RESOURCE:
        return [(offer.cause, resource, "") for resource, _, _ in offer.short]
    return [(offer.cause, "", offer.detail if offer.cause is NodeCause.TAINT else "")]


def _describe_requests(offers: ShapeOffers) -> str:
    amounts = [
        f"{name} {tell_amount(name, amount)}"
        for name, amount in offers.requests
        if name != units.PODS and amount
    ]
    return ", ".join(amounts) or "nothing"
