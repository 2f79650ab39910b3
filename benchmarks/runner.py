"""Runs scenarios one after the other and yields their rows."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from benchmarks.cluster import Cluster
from benchmarks.coldstart import measure_start
from benchmarks.measure import Attach, Laboratory, Measurement
from benchmarks.rows import Row, make_row, make_start_row, name_of_start
from benchmarks.scenarios import (
    FULL_COLD_START,
    QUICK_COLD_START,
    Cell,
    Load,
    Mode,
    Who,
    make_cells,
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to run: rows whose name matches ``only``, each ``repeat`` times."""

    only: str = ""
    repeat: int = 1
    quick: bool = False

    def cells(self) -> list[Cell]:
        """Return the cells with selected rows, reduced to those."""
        chosen = (
            replace(cell, who=tuple(who for who in cell.who if self._has(cell.name(who))))
            for cell in make_cells(quick=self.quick)
        )
        return [cell for cell in chosen if cell.who]

    def starters(self) -> list[Who]:
        """Return the schedulers whose cold start is selected."""
        return [who for who in Who if self._has(name_of_start(who))]

    def _has(self, name: str) -> bool:
        return re.search(self.only, name) is not None

    def names(self) -> list[str]:
        return [
            *(cell.name(who) for cell in self.cells() for who in cell.who),
            *map(name_of_start, self.starters()),
        ]


Tell = Callable[[str], None]
"""Receives the title of the current measurement."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """The ceilings before and after, and all schedulers between."""

    before: Measurement
    runs: Mapping[Who, Measurement]
    after: Measurement


def run(cluster: Cluster, choice: Choice, tell: Tell, attach: Attach | None) -> Iterator[Row]:
    """Measure everything selected."""
    laboratory = Laboratory(cluster, attach)
    cells = choice.cells()
    if cells:
        tell("warming up")
        _warm_up(cluster, laboratory, cells[0].load)
    for series in _divide(cells):
        yield from _measure_series(cluster, laboratory, series, choice.repeat, tell)
    cold = QUICK_COLD_START if choice.quick else FULL_COLD_START
    for who in choice.starters():
        tell(name_of_start(who))
        starts = [measure_start(cluster, laboratory, cold, who) for _ in range(choice.repeat)]
        yield make_start_row(cold, who, starts)


def _warm_up(cluster: Cluster, laboratory: Laboratory, load: Load) -> None:
    """Warm up the API server and the file caches; not measured."""
    cluster.furnish(load.nodes, 0)
    small = replace(load, name="warm-up", groups=200, size=1, residents=0)
    laboratory.measure_ceiling(Cell(small, Mode.BURST, gated=True, who=()))


def _divide(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Group the cells that are measured alternately."""
    series: dict[tuple[str, str, bool], list[Cell]] = {}
    for cell in cells:
        key = (cell.load.turns or cell.load.name, cell.mode, cell.gated)
        series.setdefault(key, []).append(cell)
    return list(series.values())


def _measure_series(
    cluster: Cluster, laboratory: Laboratory, cells: Sequence[Cell], repeat: int, tell: Tell
) -> Iterator[Row]:
    """Measure cells alternately, in both orders (ABBA)."""
    turns: dict[str, list[_Turn]] = {cell.load.name: [] for cell in cells}
    for number in range(repeat):
        for cell in cells[:: -1 if number % 2 else 1]:
            known = turns[cell.load.name]
            before = known[-1].after if known and len(cells) == 1 else None
            known.append(_take_turn(cluster, laboratory, cell, before, tell))
    for cell in cells:
        for who in cell.who:
            known = turns[cell.load.name]
            around = [(one.before, one.after) for one in known]
            yield make_row(cell, who, [one.runs[who] for one in known], around)


def _take_turn(
    cluster: Cluster, laboratory: Laboratory, cell: Cell, before: Measurement | None, tell: Tell
) -> _Turn:
    """Measure every scheduler once; ``before`` is the ceiling if it was just measured."""
    cluster.furnish(cell.load.nodes, cell.load.residents)
    load = cell.load
    cluster.have_quotas(are_there=load.has_quotas, have_queues=load.has_queues)
    with (
        cluster.kubelets() if cell.load.has_kubelets else nullcontext(),
        cluster.topology() if cell.load.must_gather else nullcontext(),
        cluster.devices() if cell.load.has_devices else nullcontext(),
    ):
        if before is None:
            tell(f"{cell.names[0]}: ceiling")
            before = laboratory.measure_ceiling(cell)
        runs = {}
        for who in cell.who:
            tell(cell.name(who))
            runs[who] = laboratory.measure(cell, who)
        tell(f"{cell.names[0]}: ceiling")
        return _Turn(before, runs, laboratory.measure_ceiling(cell))
