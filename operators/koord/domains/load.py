"""What nodes really use."""

from collections.abc import Iterable
from typing import Final

from koord.core.engine.plugin import Plugin
from koord.core.load.aware import LoadAware
from koord.core.load.model import NodeLoad
from koord.core.load.options import LoadOptions
from koord.core.load.plugin import Loads
from koord.domains.planning import Planning, PlanOptions
from koord.kube.errors import NotFound
from koord.kube.kind import Kind, Stateless, of_plugin
from koord.kube.translate.load import translate_node_metric
from koord.kube.translate.load_hints import LoadPodReader
from koord.kube.wire import WireNodeMetric

NODE_METRICS: Final = Kind[WireNodeMetric, NodeLoad, Stateless[WireNodeMetric, NodeLoad]](
    "slo.koordinator.sh/v1alpha1",
    "nodemetrics",
    WireNodeMetric,
    lambda _: Stateless(translate_node_metric),
    of_plugin(Loads),
    Loads.upsert,
    Loads.remove,
    is_namespaced=False,
    absent_on=(NotFound,),
)


def _make_plugins(options: PlanOptions) -> Iterable[Plugin]:
    yield Loads(compat=options.compat)
    load = options.of(LoadOptions)
    if load.is_on:
        yield LoadAware(load, compat=options.compat)


PLANNING: Final = Planning(
    kinds=(NODE_METRICS,),
    make_plugins=_make_plugins,
    pod_reader=LoadPodReader(),
    reads_pods=lambda options: options.of(LoadOptions).is_on,
)
