"""What is measured: how many pods in which form, on how many nodes, meeting what."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Mode(StrEnum):
    """When the pods come."""

    DRAINED = "drained"
    """All are there before anybody is to place them."""
    BURST = "burst"
    """They come as fast as they can be created, while they are placed."""


class Who(StrEnum):
    """Who places the pods."""

    OPERATORS = "operators"
    KUBE_SCHEDULER = "kube-scheduler"


@dataclass(frozen=True, slots=True)
class Load:
    """Gangs of ``size`` pods, or single pods, on nodes that hold ``residents`` already."""

    name: str
    groups: int
    size: int
    nodes: int
    requests: Mapping[str, str]
    residents: int = 0
    has_kubelets: bool = False
    """Whether pods run once they are bound; that costs the API server as much again."""
    must_gather: str = ""
    """The layer of the network that each gang has to share; empty: it asks nothing."""
    has_quotas: bool = False
    """Whether every pod belongs to a quota, on the third level of a tree."""
    is_gated_only: bool = False
    turns: str = ""
    """Loads of the same word here are measured turn about, because they are to be compared."""

    @property
    def pods(self) -> int:
        """How many pods there are to place."""
        return self.groups * self.size


@dataclass(frozen=True, slots=True)
class Cell:
    """A load in one form and mode: what is compared under equal conditions."""

    load: Load
    mode: Mode
    gated: bool
    who: tuple[Who, ...]

    def name(self, who: Who) -> str:
        """Return what the row is called."""
        form = "gated" if self.gated else "ungated"
        return f"{self.load.name}-{who if who is Who.KUBE_SCHEDULER else form}-{self.mode}"

    @property
    def names(self) -> list[str]:
        """All rows of it."""
        return [self.name(who) for who in self.who]


CPU: Final = {"cpu": "500m", "memory": "512Mi"}
WHOLE_NODE: Final = {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "8"}

FULL: Final = (
    Load("singles", 1000, 1, 100, CPU),
    Load("gangs", 100, 10, 100, CPU),
    Load("gangs-that-run", 100, 10, 100, CPU, has_kubelets=True, is_gated_only=True),
    Load("no-quotas", 200, 10, 100, CPU, is_gated_only=True, turns="quotas"),
    Load("quotas", 200, 10, 100, CPU, is_gated_only=True, has_quotas=True, turns="quotas"),
    Load("one-gang", 1, 512, 512, WHOLE_NODE, turns="topology"),
    Load(
        "one-gang-gathered",
        1,
        512,
        512,
        WHOLE_NODE,
        must_gather="DatacenterLayer",
        turns="topology",
    ),
    Load("large-alone", 5000, 1, 1000, CPU, turns="residents"),
    Load("large", 5000, 1, 1000, CPU, residents=10_000, turns="residents"),
)
QUICK: Final = (
    Load("singles", 100, 1, 20, CPU),
    Load("gangs", 10, 10, 20, CPU),
)
COLD_START: Final = "cold-start"


@dataclass(frozen=True, slots=True)
class ColdStart:
    """How much is there when somebody starts."""

    nodes: int
    residents: int

    @property
    def objects(self) -> int:
        """What has to be read before anything can be decided."""
        return self.nodes + self.residents


FULL_COLD_START: Final = ColdStart(1000, 28_000)
QUICK_COLD_START: Final = ColdStart(20, 500)


def make_cells(*, quick: bool) -> Iterator[Cell]:
    """Yield what is measured. kube-scheduler knows no gates, so it stands beside the ungated."""
    for load in QUICK if quick else FULL:
        for mode in Mode:
            for gated in (True, False):
                if load.has_kubelets and mode is Mode.DRAINED:
                    continue
                if load.is_gated_only and not gated:
                    continue
                if load.must_gather and mode is Mode.DRAINED:
                    continue
                if quick and gated is not (load.size > 1):
                    continue
                both = not gated and not load.must_gather
                both = both and not (quick and mode is Mode.DRAINED)
                yield Cell(load, mode, gated, tuple(Who) if both else (Who.OPERATORS,))
