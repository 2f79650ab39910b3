"""Nodes that come and go."""

from collections.abc import Iterable
from typing import Final

from koord.core.autoscaler.plugin import ElasticNodes
from koord.core.engine.plugin import Plugin
from koord.domains.planning import Planning, PlanOptions


def _make_plugins(options: PlanOptions) -> Iterable[Plugin]:
    # Koordinator leaves it to the taints.
    return () if options.compat else (ElasticNodes(),)


PLANNING: Final = Planning(make_plugins=_make_plugins)
