"""What each policy of a queue costs and gives: a generated trace of GPU jobs in virtual time.

    python -m benchmarks.queue_policies [--seeds 1 2 3] [--only Backfill] [--loads 0.95]

A figure is the median over seeds; in brackets: the least and the most; those of each run are in
``build/bench/queue-policies.json``. Nothing of it depends on the machine, but for the time that
turns take. The decisions are those of ``core/queue``; nodes are counts of GPUs. Other schedulers
are played by their rules of order, see ``queue_peers``: what they do beside that is not in it.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.queue_estimates import ESTIMATORS, learn
from benchmarks.queue_peers import AdmittedByQuota, ByPriority, ByQueueShare, OneHeadEach
from benchmarks.queue_plot import draw
from benchmarks.queue_trace import (
    CAPACITY,
    CLASSES,
    GPUS_PER_NODE,
    HOUR,
    NODES,
    Trace,
    class_of,
    draw_kinds,
    make_past,
    make_trace,
    merge,
    quotas,
    shake,
)
from benchmarks.queue_watch import Watched
from koord.core.queue.counted_room import CountedNode
from koord.core.queue.order import make_tournament
from koord.core.queue.promises import MoveCause
from koord.core.queue.settings import Policy, QueueSettings
from koord.core.queue.usage import Decay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from benchmarks.queue_estimates import Estimator
    from koord.core.queue.simulation import MakeOffers, TraceUnit

_BUILD: Final = Path("build/bench")
_OURS: Final = QueueSettings()
_GREEDY: Final = replace(_OURS, policy=Policy.BEST_EFFORT)
_DEPTH: Final = 150
"""How many of a quota are looked at in a round: without it a line that only grows costs hours."""
_SHORTEST_COUNTED: Final = 600
"""Of the slowdown: jobs of seconds would say nothing else."""


@dataclass(frozen=True)
class Contender:
    """Settings of a queue, and an order of turns."""

    name: str
    settings: QueueSettings
    make_offers: Callable[[], MakeOffers] = lambda: make_tournament
    knows_limits: bool = True
    decay: Decay | None = None


CONTENDERS: Final = (
    # The first one is what the others are compared with.
    Contender("BestEffort", _GREEDY),
    Contender("Strict", replace(_OURS, policy=Policy.STRICT)),
    Contender("Backfill", _OURS),
    Contender("Backfill, `protectAfter` 0s", replace(_OURS, protect_after=0)),
    Contender("Backfill, `reserveDepth` 16", replace(_OURS, protect_after=0, reserve_depth=16)),
    Contender("Backfill, users by use", _OURS, decay=Decay()),
    Contender("greedy by priority", _GREEDY, lambda: ByPriority),
    Contender("as Kueue, BestEffortFIFO", _GREEDY, lambda: OneHeadEach),
    Contender(
        "as Volcano, sla 1h",
        replace(
            _OURS,
            protect_after=HOUR,
            reserve_depth=16,
            max_idle_share=100,
            max_hold=1 << 30,
            short_limit=0,
        ),
        lambda: ByQueueShare,
        knows_limits=False,
    ),
    Contender("as Koord-Queue, Block", _GREEDY, AdmittedByQuota),
)


@dataclass
class Row:
    """What came out of one run."""

    name: str
    load: float
    limited: float
    figures: dict[str, float]
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Least and most of all runs."""
    runs: Sequence[Mapping[str, float]] = ()


def play(
    contender: Contender, trace: Trace, estimator: Estimator | None = None
) -> tuple[Watched, float]:
    """Play a trace; return the simulation and the processor time of it.

    With an ``estimator`` starts are foreseen as well.
    """
    nodes = [CountedNode(f"n{at:02}", GPUS_PER_NODE) for at in range(NODES)]
    simulation = Watched(
        nodes,
        quotas(are_one=trace.is_one_queue),
        lambda _: contender.settings,
        make_offers=contender.make_offers(),
        decay=contender.decay,
        depth=_DEPTH,
        estimator=estimator if contender.settings.policy is Policy.BACKFILL else None,
    )
    units: Iterable[TraceUnit] = trace.units
    if not contender.knows_limits:
        units = [replace(unit, job=replace(unit.job, limit=None)) for unit in units]
    began = time.process_time()
    simulation.play(units, {})
    return simulation, time.process_time() - began


def measure(simulation: Watched, trace: Trace, seconds: float) -> dict[str, float]:
    """Return the figures of a run, of what came in the window that counts."""
    begin, end = trace.window
    units = [unit for unit in trace.units if begin <= unit.arrival < end]
    figures: dict[str, float] = {}
    for name in CLASSES:
        waits = sorted(
            simulation.starts[unit.job.key] - unit.arrival
            for unit in units
            if class_of(unit) == name
        )
        figures |= {
            f"wait p50 {name}": _percentile(waits, 50),
            f"wait p95 {name}": _percentile(waits, 95),
            f"wait max {name}": _percentile(waits, 100),
        }
    slowdowns = sorted(_slowdown(simulation, unit) for unit in units)
    received = _received(simulation, trace)
    figures |= {
        "slowdown mean": statistics.mean(slowdowns),
        "utilisation": 100 * sum(received.values()) / (CAPACITY * (end - begin)),
        "idle held": 100 * simulation.idle / (CAPACITY * trace.span),
        "overtakes": _overtakes(simulation, units),
        "jain users": _jain_of_users(trace, received),
        "ms per round": 1000 * seconds / max(1, simulation.rounds),
    }
    return figures | simulation.promise_figures() | simulation.eta_figures()


def _slowdown(simulation: Watched, unit: TraceUnit) -> float:
    wait = simulation.starts[unit.job.key] - unit.arrival
    return max(1.0, (wait + unit.duration) / max(unit.duration, _SHORTEST_COUNTED))


def _received(simulation: Watched, trace: Trace) -> dict[str, int]:
    """Return user -> GPU-seconds in the window."""
    begin, end = trace.window
    received: dict[str, int] = defaultdict(int)
    for unit in trace.units:
        start = simulation.starts[unit.job.key]
        ran = min(end, start + unit.duration) - max(begin, start)
        received[unit.user] += unit.job.total * max(0, ran)
    return received


def _jain_of_users(trace: Trace, received: Mapping[str, int]) -> float:
    """Return how equal users are in what they got of what they were entitled to.

    Entitled is what the quota guarantees, given to its users in equal parts as far as they ask for
    it; more than that counts as all.
    """
    begin, end = trace.window
    asked: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for unit in trace.units:
        if begin <= unit.arrival < end:
            asked[unit.job.quota][unit.user] += unit.job.total * unit.duration
    parts = []
    for quota in quotas(are_one=trace.is_one_queue):
        left = float(quota.min * (end - begin))
        users = sorted(asked[quota.name].items(), key=lambda user: user[1])
        for at, (user, wanted) in enumerate(users):
            entitled = min(wanted, left / (len(users) - at))
            left -= entitled
            parts.append(min(1.0, received.get(user, 0) / entitled) if entitled else 1.0)
    return sum(parts) ** 2 / (len(parts) * sum(part * part for part in parts))


def _overtakes(simulation: Watched, units: Sequence[TraceUnit]) -> float:
    """Return by how many later ones of its quota a unit was passed, on average."""
    passed = 0
    by_quota: dict[str, list[TraceUnit]] = defaultdict(list)
    for unit in units:
        by_quota[unit.job.quota].append(unit)
    for line in by_quota.values():
        times = [(unit.arrival, simulation.starts[unit.job.key]) for unit in line]
        passed += sum(
            1
            for arrival, start in times
            for other, its_start in times
            if other > arrival and its_start < start and other < start
        )
    return passed / max(1, len(units))


def _percentile(values: Sequence[int], percent: int) -> float:
    if not values:
        return 0.0
    return values[min(len(values) - 1, len(values) * percent // 100)] / 60


def run(options: argparse.Namespace) -> list[Row]:
    """Play all that is asked for; a row is the median of the repeats."""
    rows = []
    for limited in options.limited:
        for load in options.loads:
            traces = [make_trace(seed, load, options.days, limited) for seed in options.seeds]
            traces = [merge(trace) if options.one_queue else trace for trace in traces]
            shakes = range(options.repeat)
            traces = [shake(trace, at) if at else trace for trace in traces for at in shakes]
            greedy: Sequence[Mapping[str, float]] = ()
            for contender in CONTENDERS:
                if not re.search(options.only, contender.name):
                    continue
                runs = [
                    _run_once(contender, trace, options.eta, options.past_days) for trace in traces
                ]
                if contender is CONTENDERS[0]:
                    greedy = runs
                elif greedy:
                    runs = [compare(*both) for both in zip(runs, greedy, strict=True)]
                rows.append(_summarise(contender.name, load, limited, runs))
                print(_line(rows[-1]), flush=True)
                _write(rows, options.plot)
    return rows


def _run_once(
    contender: Contender, trace: Trace, expectation: str, past_days: float
) -> dict[str, float]:
    estimator = None
    if expectation:
        kinds = draw_kinds(trace.units, trace.span)
        past = make_past(trace, past_days) if past_days else None
        if past is not None:
            kinds |= draw_kinds(past.units, past.span)
        estimator = ESTIMATORS[expectation](kinds)
        if past is not None:
            learn(estimator, past)
    simulation, seconds = play(contender, trace, estimator)
    return measure(simulation, trace, seconds)


def compare(figures: Mapping[str, float], greedy: Mapping[str, float]) -> dict[str, float]:
    """Return the figures of a run beside those of ``BestEffort`` with the same jobs.

    Waits of the largest jobs differ more between traces than between policies: so the quotient is
    taken of each trace, and the median of these. It is left out where greedy lets none wait.
    """
    wait, of_greedy = figures["wait p95 > 64"], greedy["wait p95 > 64"]
    return dict(figures) | ({"p95 to greedy": wait / of_greedy} if of_greedy else {})


def _summarise(name: str, load: float, limited: float, runs: Sequence[Mapping[str, float]]) -> Row:
    figures, spread = {}, {}
    for key in dict.fromkeys(key for figures_of_run in runs for key in figures_of_run):
        values = [figures_of_run[key] for figures_of_run in runs if key in figures_of_run]
        figures[key] = statistics.median(values)
        spread[key] = (min(values), max(values))
    return Row(name, load, limited, figures, spread, runs)


SEEN_CAUSES: Final = (MoveCause.GUARANTEE, MoveCause.LOAD, MoveCause.AGE, MoveCause.OTHER)
"""What moves promises here: all units have one priority, and nodes stay."""
_COLUMNS: Final = (
    ("1 GPU, median", "wait p50 1", "{:.0f} min"),
    ("1 GPU, p95", "wait p95 1", "{:.0f} min"),
    ("9-64, p95", "wait p95 9-64", "{:.0f} min"),
    ("> 64, median", "wait p50 > 64", "{:.0f} min"),
    ("> 64, p95", "wait p95 > 64", "{:.0f} min"),
    ("to greedy", "p95 to greedy", "{:.2f}"),
    ("used", "utilisation", "{:.1f} %"),
    ("held idle", "idle held", "{:.1f} %"),
    ("passed by", "overtakes", "{:.0f}"),
    ("slowdown", "slowdown mean", "{:.1f}"),
    ("users, Jain", "jain users", "{:.2f}"),
    ("kept", "kept", "{:.0f} %"),
    ("kept but for causes", "kept but for causes", "{:.1f} %"),
    *((cause, f"moved by {cause}", "{:.0f}") for cause in SEEN_CAUSES),
    ("ETA error", "eta error", "{:.0f} %"),
    ("ETA within bound", "eta coverage", "{:.0f} %"),
    ("ETA in time", "eta in time", "{:.0f} %"),
    ("ms", "ms per round", "{:.1f}"),
)


def _line(row: Row) -> str:
    cells = [_cell(row, key, form) for _, key, form in _COLUMNS]
    limited = f"{row.limited * 100:.0f} %"
    return f"| {row.name} | {row.load * 100:.0f} % | {limited} | {' | '.join(cells)} |"


def _cell(row: Row, key: str, form: str) -> str:
    if key not in row.figures:
        return ""
    least, most = row.spread.get(key, (0.0, 0.0))
    text = form.format(row.figures[key])
    return text if least == most else f"{text} ({form.format(least)} to {form.format(most)})"


def render(rows: Iterable[Row]) -> str:
    """Return the table as Markdown."""
    heads = ["Policy", "load", "limits", *(name for name, _, _ in _COLUMNS)]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *map(_line, rows)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue_policies")
    parser.add_argument("--days", type=float, default=10)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--eta", choices=["", *ESTIMATORS], default="", help="foresee starts")
    parser.add_argument(
        "--past-days", type=float, default=30, help="what users ran before, that is learned from"
    )
    parser.add_argument("--repeat", type=int, default=1, help="with submissions moved a little")
    parser.add_argument("--loads", type=float, nargs="+", default=[0.95])
    parser.add_argument("--limited", type=float, nargs="+", default=[1.0])
    parser.add_argument("--one-queue", action="store_true", help="all jobs in one quota")
    parser.add_argument("--only", default="", help="contenders whose name it finds")
    parser.add_argument("--plot", type=Path, default=_BUILD / "queue-policies.svg")
    options = parser.parse_args()
    print(render(run(options)))


def _write(rows: Sequence[Row], plot: Path) -> None:
    _BUILD.mkdir(parents=True, exist_ok=True)
    text = json.dumps([vars(row) for row in rows], indent=1)
    (_BUILD / "queue-policies.json").write_text(text, encoding="utf-8")
    plot.write_text(draw([(row.name, row.figures) for row in rows]), encoding="utf-8")


if __name__ == "__main__":
    main()
