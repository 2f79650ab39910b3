"""The scenarios: number and form of the pods, nodes, and what they contain already."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Mode(StrEnum):
    """When the pods are created."""

    DRAINED = "drained"
    """All exist before the scheduler starts to place them."""
    BURST = "burst"
    """They are created as fast as possible, while they are placed."""


class Who(StrEnum):
    """The scheduler of the pods."""

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
    """Whether pods run once they are bound; that doubles the load of the API server."""
    must_gather: str = ""
    """The layer of the network that each gang must share; empty for no constraint."""
    has_quotas: bool = False
    """Whether every pod belongs to a quota, on the third level of a tree."""
    has_queues: bool = False
    """Whether units of these quotas have turns: room is kept for the first that waits."""
    has_devices: bool = False
    """Whether nodes report their GPUs, so that every pod gets a certain one."""
    is_gated_only: bool = False
    turns: str = ""
    """Loads with the same value are measured alternately, to be compared."""

    @property
    def pods(self) -> int:
        """Number of pods to place."""
        return self.groups * self.size


@dataclass(frozen=True, slots=True)
class Cell:
    """A load in one form and mode, compared under equal conditions."""

    load: Load
    mode: Mode
    gated: bool
    who: tuple[Who, ...]

    def name(self, who: Who) -> str:
        form = "gated" if self.gated else "ungated"
        return f"{self.load.name}-{who if who is Who.KUBE_SCHEDULER else form}-{self.mode}"

    @property
    def names(self) -> list[str]:
        """All rows of it."""
        return [self.name(who) for who in self.who]


CPU: Final = {"cpu": "500m", "memory": "512Mi"}
ONE_GPU: Final = {"cpu": "2", "memory": "16Gi", "nvidia.com/gpu": "1"}
WHOLE_NODE: Final = {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "8"}

FULL: Final = (
    Load("singles", 1000, 1, 100, CPU),
    Load("gangs", 100, 10, 100, CPU),
    Load("gangs-that-run", 100, 10, 100, CPU, has_kubelets=True, is_gated_only=True),
    Load("no-quotas", 200, 10, 100, CPU, is_gated_only=True, turns="quotas"),
    Load("quotas", 200, 10, 100, CPU, is_gated_only=True, has_quotas=True, turns="quotas"),
    Load(
        "quotas-with-queues",
        200,
        10,
        100,
        CPU,
        is_gated_only=True,
        has_quotas=True,
        has_queues=True,
        turns="quotas",
    ),
    Load("gpus", 4000, 1, 500, ONE_GPU, is_gated_only=True, has_devices=True),
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
    """The size of the cluster at the start."""

    nodes: int
    residents: int

    @property
    def objects(self) -> int:
        """Number of objects to read before the first decision."""
        return self.nodes + self.residents


FULL_COLD_START: Final = ColdStart(1000, 28_000)
QUICK_COLD_START: Final = ColdStart(20, 500)


def make_cells(*, quick: bool) -> Iterator[Cell]:
    """Yield all cells. kube-scheduler knows no gates, so it is compared without them."""
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
