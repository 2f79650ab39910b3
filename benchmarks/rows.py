"""From measurements to rows: medians over the repetitions, shares of the ceiling around them."""

from collections.abc import Callable, Sequence
from statistics import mean, median

import msgspec

from benchmarks.coldstart import Start
from benchmarks.measure import Measurement
from benchmarks.scenarios import COLD_START, Cell, ColdStart, Who


class Spread(msgspec.Struct, frozen=True):
    """Minimum and maximum of all repetitions."""

    least: float
    most: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario, as in the file; fields that do not apply are null."""

    name: str
    scheduler: str
    pods: int
    nodes: int
    residents: int
    gang_size: int
    gated: bool
    mode: str
    repetitions: int
    ceiling_pods_per_s: float | None = None
    pods_per_s: float | None = None
    share: float | None = None
    share_spread: Spread | None = None
    writes_per_pod: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    cpu_ms_per_pod: float | None = None
    first_bind_ms: float | None = None
    ms_per_object: float | None = None
    idle_cpu: float | None = None
    rss_mib: float
    noise: float
    """Processors that the rest of the machine used just before."""
    pace_ms: float | None = None
    """Speed of the processors; see ``benchmarks.pace``."""
    share_by_pace: float | None = None
    """The share, with durations normalised to equal speed of the machine."""
    cpu_by_pace: float | None = None
    """``cpu_ms_per_pod`` divided by the pace, run by run: comparable between rows."""


def make_row(
    cell: Cell,
    who: Who,
    runs: Sequence[Measurement],
    ceilings: Sequence[tuple[Measurement, Measurement]],
) -> Row:
    """Make the row of one scheduler.

    ``ceilings`` are those before and after each run: it is compared with the mean of both, because
    machines get slower and faster with time.
    """
    around = [mean((before.pods_per_s, after.pods_per_s)) for before, after in ceilings]
    shares = [run.pods_per_s / ceiling for run, ceiling in zip(runs, around, strict=True)]
    by_pace = [
        _by_pace(run) / mean((_by_pace(before), _by_pace(after)))
        for run, (before, after) in zip(runs, ceilings, strict=True)
    ]

    def middle(of: Callable[[Measurement], float], digits: int) -> float:
        return round(median(map(of, runs)), digits)

    return Row(
        name=cell.name(who),
        scheduler=who,
        pods=cell.load.pods,
        nodes=cell.load.nodes,
        residents=cell.load.residents,
        gang_size=cell.load.size,
        gated=cell.gated,
        mode=cell.mode,
        repetitions=len(runs),
        ceiling_pods_per_s=round(median(around), 1),
        pods_per_s=middle(lambda run: run.pods_per_s, 1),
        share=round(median(shares), 3),
        share_spread=Spread(round(min(shares), 3), round(max(shares), 3)),
        writes_per_pod=middle(lambda run: run.writes_per_pod, 3),
        p50_ms=middle(lambda run: run.p50 * 1e3, 1),
        p99_ms=middle(lambda run: run.p99 * 1e3, 1),
        cpu_ms_per_pod=middle(lambda run: run.cpu_ms_per_pod, 3),
        idle_cpu=None if not cell.load.residents else middle(lambda run: run.idle_cpu or 0.0, 4),
        rss_mib=middle(lambda run: run.rss_mib, 1),
        noise=middle(lambda run: run.noise, 2),
        pace_ms=middle(lambda run: run.pace, 3),
        share_by_pace=round(median(by_pace), 3),
        cpu_by_pace=middle(lambda run: run.cpu_ms_per_pod / run.pace, 4),
    )


def _by_pace(run: Measurement) -> float:
    """Return how many pods were placed while the loop of ``Pace`` would have run once."""
    return run.pods_per_s * run.pace


def make_start_row(cold: ColdStart, who: Who, starts: Sequence[Start]) -> Row:
    first = median(one.first_bind for one in starts) * 1e3
    return Row(
        name=name_of_start(who),
        scheduler=who,
        pods=1,
        nodes=cold.nodes,
        residents=cold.residents,
        gang_size=1,
        gated=who is Who.OPERATORS,
        mode="start",
        repetitions=len(starts),
        first_bind_ms=round(first, 1),
        ms_per_object=round(first / cold.objects, 4),
        rss_mib=round(median(one.rss_mib for one in starts), 1),
        noise=round(median(one.noise for one in starts), 2),
    )


def name_of_start(who: Who) -> str:
    return COLD_START if who is Who.OPERATORS else f"{COLD_START}-{who}"
