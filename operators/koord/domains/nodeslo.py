"""NodeSLOs: read only where they are rendered.

The rights for that are an overlay. Without them none is seen, and nothing else waits for that.
"""

from typing import Final

from koord.api.nodeslo import NodeSLO
from koord.core.nodeslo.plugin import NodeSlos, ObservedSlo, SloOptions
from koord.domains.planning import Planning, PlanOptions
from koord.kube.errors import Forbidden, NotFound
from koord.kube.kind import AnyKind, Kind, Stateless, of_plugin
from koord.kube.translate.node_slo import translate_node_slo
from koord.kube.wire import WireCustomResource

NODE_SLOS: Final = Kind[
    WireCustomResource, ObservedSlo, Stateless[WireCustomResource, ObservedSlo]
](
    NodeSLO.names.api_version,
    NodeSLO.names.plural,
    WireCustomResource,
    lambda _: Stateless(translate_node_slo),
    of_plugin(NodeSlos),
    NodeSlos.upsert,
    NodeSlos.remove,
    is_namespaced=False,
    absent_on=(NotFound, Forbidden),
)


def _choose_kinds(options: PlanOptions) -> tuple[AnyKind, ...]:
    return (NODE_SLOS,) if options.of(SloOptions).is_on else ()


PLANNING: Final = Planning(make_plugins=lambda _: (NodeSlos(),), more_kinds=_choose_kinds)
