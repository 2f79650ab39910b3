"""Shapes that nobody waits with yet: so many pods of so many GPUs, and how many of them fit.

Written ``8`` (one pod) or ``4x8`` (four pods of 8 GPUs that start together). The resource is that
by which the nodes of the cluster offer GPUs.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from koord.core.engine.cycle import Cycle
from koord.core.engine.state import ClusterState
from koord.core.model.device_names import CARDS, KOORD_GPU, WHOLE
from koord.core.model.plan import Demand, Unit
from koord.core.model.pods import Handling, Pod, PodShape
from koord.core.model.units import PODS

MOST_PODS: Final = 1024
MOST_GPUS: Final = 1024
_FORM: Final = re.compile(r"(?:(?P<pods>[1-9]\d{0,3})[xX])?(?P<gpus>[1-9]\d{0,3})")


@dataclass(frozen=True, slots=True, order=True)
class GpuShape:
    """``pods`` pods of ``gpus`` GPUs each."""

    pods: int
    gpus: int

    def __str__(self) -> str:
        return f"{self.pods}x{self.gpus}"


def parse_shape(text: str) -> GpuShape | None:
    """Read ``8`` or ``4x8``; None if it is neither."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    shape = GpuShape(int(match["pods"] or 1), int(match["gpus"]))
    return shape if shape.pods <= MOST_PODS and shape.gpus <= MOST_GPUS else None


def make_shape_unit(state: ClusterState, shape: GpuShape) -> Unit:
    """Return a unit of that shape, as if it waited."""
    name, factor = _find_resource(state)
    requests = tuple(sorted({PODS: 1, name: shape.gpus * factor}.items()))
    pods = tuple(_make_pod(f"{shape}-{at}", requests) for at in range(shape.pods))
    return Unit(f"shape:{shape}", (Demand(f"shape:{shape}", pods, len(pods)),), f"shape:{shape}")


def _make_pod(name: str, requests: tuple[tuple[str, int], ...]) -> Pod:
    return Pod(
        f"shape:{name}",
        "",
        name,
        PodShape(requests),
        handling=Handling.RESERVE,
        never_preempts=True,
    )


def _find_resource(state: ClusterState) -> tuple[str, int]:
    """Return the resource by which most nodes offer GPUs, and how much of it one GPU is."""
    nodes = [node for node in state.table.nodes if node is not None]
    counts = {name: sum(node.allocatable.get(name, 0) > 0 for node in nodes) for name in CARDS}
    name = max(CARDS, key=lambda card: counts[card])
    is_reported = any(node.allocatable.get(KOORD_GPU, 0) > 0 for node in nodes)
    return (KOORD_GPU, WHOLE) if not counts[name] and is_reported else (name, 1)


@dataclass(frozen=True, slots=True)
class ShapeCount:
    """How many units of a shape fit, and how many would if all free GPUs were together."""

    shape: GpuShape
    fitting: int
    possible: int


def count_shapes(state: ClusterState, cycle: Cycle, shapes: Iterable[GpuShape]) -> list[ShapeCount]:
    """Count how often each shape fits by itself, on what is free now."""
    name, factor = _find_resource(state)
    column = state.table.columns.get(name)
    counts = []
    for shape in shapes:
        unit = make_shape_unit(state, shape)
        like = unit.pods[0]
        cycle.expect((like,))
        rows = np.arange(cycle.used.shape[1])
        fitting = int(cycle.bounds(cycle.shape_of(like), rows).sum()) // shape.pods
        free = 0
        if column is not None:
            free = int(np.maximum(cycle.table.allocatable[column] - cycle.used[column], 0).sum())
        possible = free // factor // (shape.pods * shape.gpus)
        counts.append(ShapeCount(shape, fitting, max(fitting, possible)))
    return counts
