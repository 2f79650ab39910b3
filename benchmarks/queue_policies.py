"""What each policy of a queue costs and gives: a generated trace of GPU jobs in virtual time.

    python -m benchmarks.queue_policies [--days 10] [--repeat 3] [--only EASY] [--loads 0.95]

Nothing of it depends on the machine, but for the time that turns take. The decisions are those of
``core/queue``; nodes are counts of GPUs. Other schedulers are played by their rules of order, see
``queue_peers``: what they do beside that is not in it.
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
    make_trace,
    merge,
    quotas,
    shake,
)
from koord.core.queue.counted_room import CountedNode
from koord.core.queue.order import make_tournament
from koord.core.queue.settings import Policy, QueueSettings
from koord.core.queue.simulation import Simulation, TraceUnit
from koord.core.queue.usage import Decay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from koord.core.queue.simulation import MakeOffers

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
    Contender("Strict", replace(_OURS, policy=Policy.STRICT)),
    Contender("BestEffort", _GREEDY),
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
class Watched(Simulation):
    """A simulation that notes what was promised to whom."""

    promises: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Unit -> when which latest start was reserved for it, as far as that changed."""
    rounds: int = 0

    def decide(self) -> Mapping[str, int]:
        idle = super().decide()
        self.rounds += 1
        for key in self.turns.reserved_units():
            reserved = self.turns.reserved(key)
            if reserved is None or reserved.is_open:
                continue
            made = self.promises[key]
            if not made or made[-1][1] != reserved.start:
                made.append((self.room.now, reserved.start))
        return idle


@dataclass
class Row:
    """What came out of one run."""

    name: str
    load: float
    limited: float
    figures: dict[str, float]


def play(contender: Contender, trace: Trace) -> tuple[Watched, float]:
    """Play a trace; return the simulation and the processor time of it."""
    nodes = [CountedNode(f"n{at:02}", GPUS_PER_NODE) for at in range(NODES)]
    simulation = Watched(
        nodes,
        quotas(are_one=trace.is_one_queue),
        lambda _: contender.settings,
        make_offers=contender.make_offers(),
        decay=contender.decay,
        depth=_DEPTH,
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
    return figures | _promised(simulation)


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


def _promised(simulation: Watched) -> dict[str, float]:
    """Return how many first promises were kept, and how far starts were from them."""
    promised = {key: made for key, made in simulation.promises.items() if made}
    if not promised:
        return {}
    starts = simulation.starts
    kept = sum(starts[key] <= made[0][1] for key, made in promised.items())
    errors = [
        abs(made[0][1] - starts[key]) / max(60, starts[key] - made[0][0])
        for key, made in promised.items()
    ]
    return {
        "promises": len(promised),
        "kept": 100 * kept / len(promised),
        "eta error": 100 * statistics.median(errors),
    }


def _percentile(values: Sequence[int], percent: int) -> float:
    if not values:
        return 0.0
    return values[min(len(values) - 1, len(values) * percent // 100)] / 60


def run(options: argparse.Namespace) -> list[Row]:
    """Play all that is asked for; a row is the median of the repeats."""
    rows = []
    for limited in options.limited:
        for load in options.loads:
            trace = make_trace(options.seed, load, options.days, limited)
            trace = merge(trace) if options.one_queue else trace
            for contender in CONTENDERS:
                if not re.search(options.only, contender.name):
                    continue
                runs = []
                for at in range(options.repeat):
                    shaken = shake(trace, at) if at else trace
                    simulation, seconds = play(contender, shaken)
                    runs.append(measure(simulation, shaken, seconds))
                keys = dict.fromkeys(key for one in runs for key in one)
                figures = {
                    key: statistics.median(one[key] for one in runs if key in one) for key in keys
                }
                rows.append(Row(contender.name, load, limited, figures))
                print(_line(rows[-1]), flush=True)
                _write(rows, options.plot)
    return rows


_COLUMNS: Final = (
    ("1 GPU, median", "wait p50 1", "{:.0f} min"),
    ("1 GPU, p95", "wait p95 1", "{:.0f} min"),
    ("9-64, p95", "wait p95 9-64", "{:.0f} min"),
    ("> 64, median", "wait p50 > 64", "{:.0f} min"),
    ("> 64, p95", "wait p95 > 64", "{:.0f} min"),
    ("used", "utilisation", "{:.1f} %"),
    ("held idle", "idle held", "{:.1f} %"),
    ("passed by", "overtakes", "{:.0f}"),
    ("slowdown", "slowdown mean", "{:.1f}"),
    ("users, Jain", "jain users", "{:.2f}"),
    ("kept", "kept", "{:.0f} %"),
    ("error", "eta error", "{:.0f} %"),
    ("ms", "ms per round", "{:.1f}"),
)


def _line(row: Row) -> str:
    cells = [
        form.format(row.figures[key]) if key in row.figures else "" for _, key, form in _COLUMNS
    ]
    limited = f"{row.limited * 100:.0f} %"
    return f"| {row.name} | {row.load * 100:.0f} % | {limited} | {' | '.join(cells)} |"


def render(rows: Iterable[Row]) -> str:
    """Return the table as Markdown."""
    heads = ["Policy", "load", "limits", *(name for name, _, _ in _COLUMNS)]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *map(_line, rows)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue_policies")
    parser.add_argument("--days", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3, help="with submissions moved a little")
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
