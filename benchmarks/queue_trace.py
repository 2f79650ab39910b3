"""A generated trace of jobs on GPUs, with the shape that public traces have; it is none of them.

Most jobs take one GPU for minutes; a tenth takes whole nodes, and most of the GPU time. Run times
have a long tail. Few users submit most, some of it in bursts, and more by day than by night. No job
has a time limit in those traces: limits are drawn, as people set them, from a few round values.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from koord.core.queue.room import UnitAsk
from koord.core.queue.simulation import SimulatedQuota, TraceUnit

if TYPE_CHECKING:
    from collections.abc import Iterable

NODES: Final = 32
GPUS_PER_NODE: Final = 8
CAPACITY: Final = NODES * GPUS_PER_NODE
HOUR: Final = 3600
DAY: Final = 24 * HOUR

_SIZES: Final = {1: 580, 2: 120, 4: 100, 8: 130, 16: 37, 32: 20, 64: 9, 96: 4}
"""GPUs -> jobs in a thousand."""
_MEDIAN_SECONDS: Final = {1: 420, 2: 600, 4: 900, 8: 2400, 16: 3600, 32: 5400, 64: 7200, 96: 7200}
_SIGMA: Final = 1.7
_LONGEST: Final = DAY
_BURST: Final = 12
_LADDER: Final = tuple(int(hours * HOUR) for hours in (0.25, 0.5, 1, 2, 4, 8, 12, 24, 48, 168))
"""What people set limits to."""
_QUOTAS: Final = {"vision": 62, "speech": 15, "search": 12, "robots": 8, "interns": 3}
"""Quota -> what is guaranteed to it, in percent; jobs are no larger than that."""
_SHARES: Final = {"vision": 8, "speech": 36, "search": 28, "robots": 19, "interns": 9}
"""Quota -> its part of the jobs that fit all: the large ones are all of vision, which asks for
less than what is guaranteed to it; the others borrow."""
ALL: Final = "all"
"""The quota of those who have only one."""
_USERS: Final = 12
_HOURS: Final = 24 * 14
_ROUNDS: Final = 4
_PAST_LOAD: Final = 0.95
_REPEATED: Final = 0.65
"""Part of the jobs that are runs of a kind: as sweeps, retrainings and nightly jobs are."""
_KIND_WIDTH: Final = 0.5
"""Run times of a kind differ by no more than e to the power of that."""
CLASSES: Final = {"1": 1, "2-8": 8, "9-64": 64, "> 64": CAPACITY}


@dataclass(frozen=True)
class Trace:
    """Jobs, and when they come: the later part is measured."""

    units: tuple[TraceUnit, ...]
    span: int
    """When the last one comes."""

    @property
    def is_one_queue(self) -> bool:
        return self.units[0].job.quota == ALL

    @property
    def window(self) -> tuple[int, int]:
        """Without the first and the last tenth: empty and ending clusters tell nothing."""
        return self.span // 10, self.span * 9 // 10


def quotas(*, are_one: bool = False) -> list[SimulatedQuota]:
    """Return the quotas: each may use more than twice what is guaranteed to it."""
    if are_one:
        return [SimulatedQuota(ALL, CAPACITY, CAPACITY, CAPACITY)]
    made = []
    for name, percent in _QUOTAS.items():
        least = CAPACITY * percent // 100
        most = min(CAPACITY, least * 5 // 2)
        made.append(SimulatedQuota(name, least, most, most))
    return made


def make_trace(seed: int, load: float, days: float, limited: float) -> Trace:
    """Return jobs that ask for ``load`` of the cluster; ``limited`` of them have time limits."""
    draw = random.Random(seed)  # noqa: S311 - chance that can be repeated
    wanted = CAPACITY * days * DAY
    jobs: list[TraceUnit] = []
    asked = 0
    while asked < wanted:
        for unit in _draw_burst(draw, len(jobs), limited):
            jobs.append(unit)
            asked += unit.job.total * unit.duration
    bursts = sorted({unit.arrival for unit in jobs})
    places = dict(zip(bursts, _draw_places(draw, len(bursts)), strict=True))
    span = int(days * DAY / load)
    for _ in range(_ROUNDS):
        trace = _spread(jobs, places, span)
        span = int(span * offered(trace) / load)
    return _spread(jobs, places, span)


def offered(trace: Trace) -> float:
    """Return how much of the cluster would be used in the window if nothing waited."""
    begin, end = trace.window
    used = sum(
        unit.job.total * max(0, min(end, unit.arrival + unit.duration) - max(begin, unit.arrival))
        for unit in trace.units
    )
    return used / (CAPACITY * (end - begin))


def _spread(jobs: list[TraceUnit], places: dict[int, float], span: int) -> Trace:
    units = (replace(unit, arrival=int(places[unit.arrival] * span)) for unit in jobs)
    return Trace(tuple(units), span)


def merge(trace: Trace) -> Trace:
    """Return the trace with all units in one quota."""
    units = (replace(unit, job=replace(unit.job, quota=ALL)) for unit in trace.units)
    return replace(trace, units=tuple(units))


def make_past(trace: Trace, days: float) -> Trace:
    """Return what the users of a trace ran before it began: other jobs, of the same kinds."""
    past = make_trace(trace.span, _PAST_LOAD, days, 1.0)
    units = (
        replace(unit, job=replace(unit.job, key=f"past-{unit.job.key}")) for unit in past.units
    )
    past = replace(past, units=tuple(units))
    return merge(past) if trace.is_one_queue else past


def shake(trace: Trace, seed: int) -> Trace:
    """Return the trace with each submission moved by up to a minute."""
    draw = random.Random(seed)  # noqa: S311 - chance that can be repeated
    units = (
        replace(unit, arrival=max(0, unit.arrival + draw.randint(-60, 60))) for unit in trace.units
    )
    return replace(trace, units=tuple(units))


def draw_kinds(
    units: Iterable[TraceUnit], seed: int, repeated: float = _REPEATED, width: float = _KIND_WIDTH
) -> dict[str, str]:
    """Return job -> its kind: those of one user and size that take about as long, by chance.

    The jobs themselves are as they were; of the others each is a kind of its own.
    """
    draw = random.Random(seed)  # noqa: S311 - chance that can be repeated
    kinds = {}
    for unit in units:
        length = int(math.log(unit.duration) / width)
        is_repeated = draw.random() < repeated
        kinds[unit.job.key] = f"{unit.job.total}x{length}" if is_repeated else unit.job.key
    return kinds


def class_of(unit: TraceUnit) -> str:
    return next(name for name, most in CLASSES.items() if unit.job.total <= most)


def _draw_burst(draw: random.Random, count: int, limited: float) -> list[TraceUnit]:
    """Return one job, or those of a sweep; their arrival is the number of the burst."""
    size = draw.choices(list(_SIZES), list(_SIZES.values()))[0]
    quota = draw.choices(list(_SHARES), list(_SHARES.values()))[0]
    if size > CAPACITY * _QUOTAS[quota] // 100:
        quota = "vision"
    # The first users of a quota submit most.
    user = min(int(draw.paretovariate(1.0)) - 1, _USERS - 1)
    median = math.log(_MEDIAN_SECONDS[size])
    many = _BURST if size == 1 and draw.random() < 0.02 else 1
    burst = []
    for at in range(many):
        duration = max(30, min(_LONGEST, int(draw.lognormvariate(median, _SIGMA))))
        limit = _draw_limit(draw, duration) if draw.random() < limited else None
        pods, gpus = (size // GPUS_PER_NODE, GPUS_PER_NODE) if size > GPUS_PER_NODE else (1, size)
        job = UnitAsk(f"j{count + at:05}", quota, pods, gpus, limit)
        burst.append(TraceUnit(job, count, duration, user=f"{quota}-{user}"))
    return burst


def _draw_limit(draw: random.Random, duration: int) -> int:
    factor = draw.choice([1.0, draw.uniform(1, 2), draw.uniform(2, 10)])
    return next((step for step in _LADDER if step >= duration * factor), _LADDER[-1])


def _draw_places(draw: random.Random, count: int) -> list[float]:
    """Return when each burst comes, in parts of the span: three times as many by day."""
    rates = [2 + math.sin(2 * math.pi * (at % 24) / 24) for at in range(_HOURS)]
    hours = draw.choices(range(_HOURS), cum_weights=list(accumulate(rates)), k=count)
    return sorted((hour + draw.random()) / _HOURS for hour in hours)
