"""A cluster in memory in which load counts, for the tests of load-aware placement."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.builders import PodBuilder, make_node, make_pod
from tests.cluster import FakeCluster

from koord.core.engine.plugin import Charging
from koord.core.engine.scoring import Scorer
from koord.core.load.aware import LoadAware
from koord.core.load.model import NAME, LoadHints, NodeLoad
from koord.core.load.numbers import Family
from koord.core.load.options import LoadOptions, LoadThresholds
from koord.core.load.plugin import Loads
from koord.core.model.pods import OwnerReference

if TYPE_CHECKING:
    from koord.core.model.nodes import Node
    from koord.core.model.pods import Pod

NOW = 100_000.0
GI = 1 << 30


def options_of(**fields: Any) -> LoadOptions:
    return LoadOptions(is_on=True, **fields)


def cpu_limit(percent: int, **more: Any) -> LoadOptions:
    """Return options that limit the use of CPU alone, and compare nodes as by default."""
    return options_of(thresholds=LoadThresholds({"cpu": percent}), **more)


class LoadCluster(FakeCluster):
    """A cluster with the plugin; it is ``NOW``."""

    def __init__(self, options: LoadOptions, *, compat: bool = False, **more: Any) -> None:
        super().__init__(compat=compat, load=options, **more)
        self.state.advance(NOW)
        self.aware = self.state.plugin(LoadAware)
        self.loads = self.state.plugin(Loads)

    def report(self, node: str, cpu: int = 0, memory: int = 0, **fields: Any) -> LoadCluster:
        """Apply a report of this moment about a node."""
        fields = {"updated": NOW, "usage": {"cpu": cpu, "memory": memory}, **fields}
        self.loads.upsert(NodeLoad(node, **fields))
        return self

    def causes(self, pod: PodBuilder | Pod, node: str) -> list[str]:
        """Return why a node is refused for its load, in the order of checks."""
        subject = pod.build() if isinstance(pod, PodBuilder) else pod
        cycle = self.open_cycle()
        checks = cycle.checks(cycle.shape_of(subject))
        row = self.row(node)
        return [
            cause.describe() for cause, _, passed in checks if cause.rank >= 90 and not passed[row]
        ]

    def score(self, pod: PodBuilder, node: str) -> int:
        """Return the score of a node for its load, which the three ways to compute it agree on."""
        cycle = self.open_cycle()
        session = next(each for each in cycle.sessions if each.name == NAME)
        assert isinstance(session, Charging)
        (terms,) = session.score_terms(cycle.shape_of(pod.build())) or ((),)
        row = self.row(node)
        used = [int(cycle.used[column, row]) for column in terms.columns]
        sizes = [int(cycle.table.allocatable[column, row]) for column in terms.size_columns]
        one = terms.score(used, sizes, 1)
        many = Scorer([terms]).first(cycle.used, cycle.table.allocatable, np.array([row]))
        assert many.tolist() == [one]
        return one

    def used(self, node: str) -> dict[str, int]:
        """Return what counts as used on a node, as placement sees it."""
        self.state.refresh()
        columns, row = self.aware.columns, self.row(node)
        return {
            name: int(self.state.table.used[columns.column(Family.GENERAL, at), row])
            for at, name in enumerate(self.aware.options.resources)
        }


def saying(pod: PodBuilder, **hints: Any) -> PodBuilder:
    """Have a pod say something about its load."""
    return pod.says(((NAME, LoadHints(**hints)),))


def of_daemon_set(pod: PodBuilder) -> Pod:
    return replace(
        pod.build(),
        owners=(
            OwnerReference("daemons", "DaemonSet", "apps/v1", "uid-daemons", is_controller=True),
        ),
    )


def node_of(name: str, own: Any = None, **amounts: int) -> Node:
    """Return a node with these amounts alone, and what its annotations say."""
    built = make_node(name).build()
    extensions = () if own is None else ((NAME, own),)
    return replace(built, allocatable={"pods": 110, **amounts}, extensions=extensions)


__all__ = ["GI", "NOW", "LoadCluster", "make_pod"]
