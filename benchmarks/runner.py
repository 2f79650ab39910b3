"""Runs scenarios one after the other and yields their rows."""

import re
from collections.abc import Callable, Iterator
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
    """What to run: rows in whose name the pattern ``only`` is found, each ``repeat`` times."""

    only: str = ""
    repeat: int = 1
    quick: bool = False

    def cells(self) -> list[Cell]:
        """Return the cells that have a chosen row, with those rows only."""
        chosen = (
            replace(cell, who=tuple(who for who in cell.who if self._has(cell.name(who))))
            for cell in make_cells(quick=self.quick)
        )
        return [cell for cell in chosen if cell.who]

    def starters(self) -> list[Who]:
        """Return whose cold start is chosen."""
        return [who for who in Who if self._has(name_of_start(who))]

    def _has(self, name: str) -> bool:
        return re.search(self.only, name) is not None

    def names(self) -> list[str]:
        """Return the names of all chosen rows."""
        return [
            *(cell.name(who) for cell in self.cells() for who in cell.who),
            *map(name_of_start, self.starters()),
        ]


Tell = Callable[[str], None]
"""Is told what is being measured."""


def run(cluster: Cluster, choice: Choice, tell: Tell, attach: Attach | None) -> Iterator[Row]:
    """Measure everything that is chosen."""
    laboratory = Laboratory(cluster, attach)
    cells = choice.cells()
    if cells:
        tell("warming up")
        _warm_up(cluster, laboratory, cells[0].load)
    for cell in cells:
        cluster.furnish(cell.load.nodes, cell.load.residents)
        cluster.have_quotas(are_there=cell.load.has_quotas)
        with (
            cluster.kubelets() if cell.load.has_kubelets else nullcontext(),
            cluster.topology() if cell.load.must_gather else nullcontext(),
        ):
            yield from _measure_cell(laboratory, cell, choice.repeat, tell)
    cold = QUICK_COLD_START if choice.quick else FULL_COLD_START
    for who in choice.starters():
        tell(name_of_start(who))
        starts = [measure_start(cluster, laboratory, cold, who) for _ in range(choice.repeat)]
        yield make_start_row(cold, who, starts)


def _warm_up(cluster: Cluster, laboratory: Laboratory, load: Load) -> None:
    """Let the API server find its size, and everybody their files in memory; not measured."""
    cluster.furnish(load.nodes, 0)
    small = replace(load, name="warm-up", groups=200, size=1, residents=0)
    laboratory.measure_ceiling(Cell(small, Mode.BURST, gated=True, who=()))


def _measure_cell(laboratory: Laboratory, cell: Cell, repeat: int, tell: Tell) -> Iterator[Row]:
    """Measure the ceiling before and after every turn, and who is compared with it between."""
    runs: dict[Who, list[Measurement]] = {who: [] for who in cell.who}
    tell(f"{cell.names[0]}: ceiling")
    ceilings = [laboratory.measure_ceiling(cell)]
    for _ in range(repeat):
        for who in cell.who:
            tell(cell.name(who))
            runs[who].append(laboratory.measure(cell, who))
        tell(f"{cell.names[0]}: ceiling")
        ceilings.append(laboratory.measure_ceiling(cell))
    for who in cell.who:
        yield make_row(cell, who, runs[who], ceilings)
