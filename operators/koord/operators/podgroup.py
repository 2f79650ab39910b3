"""The operator ``podgroup``: keeps the status of PodGroups.

What placement says of a gang is a part of it where both run in one process.
"""

import time
from typing import TYPE_CHECKING, Final

from koord.api.podgroup import PodGroup
from koord.controllers.pod_group import PodGroupStatusPolicy
from koord.core.gang.group import make_gang_key
from koord.domains.gang import NATIVE_POD_GROUPS, POD_GROUPS
from koord.domains.placement import NODES, PODS
from koord.domains.topology import TOPOLOGIES
from koord.kube.objects import ObjectRef, ref_of_pod_group
from koord.kube.status import Former
from koord.kube.write_check import Write
from koord.operators.names import PLACEMENT, POD_GROUP
from koord.operators.operator import Operator

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts

_FORMER: Final = (Former("koord-podgroup-history"),)
_FORMER_OF_PLACEMENT: Final = (Former("koord-placement"), Former("koord-placement-history"))
"""It writes under the first of these names where it runs in another process."""


def start(parts: "Parts") -> None:
    seen, places = parts.reader.translator(POD_GROUPS), PLACEMENT in parts.operators
    author = parts.make_author(
        OPERATOR,
        seen,
        lambda meta: make_gang_key(meta["namespace"], meta["name"]),
        ref_of_pod_group,
        former=(*_FORMER, *_FORMER_OF_PLACEMENT) if places else _FORMER,
        has_verdict=False,  # it is a part of SpecValid
    )
    policy = PodGroupStatusPolicy(
        state=parts.reader.state,
        author=author,
        clock=time.monotonic,
        wall_clock=time.time,
        history=parts.history,
        present=seen.status_of,
        reports=parts.gang_reports if places else None,
    )
    controller = parts.handle(author, parts.keep_status(policy, author, when_synced=False))

    def hurry(ref: ObjectRef) -> None:
        controller.hurry(make_gang_key(ref.namespace, ref.name))

    parts.gang_reports.on_news = parts.history.on_news = hurry


OPERATOR: Final = Operator(
    POD_GROUP,
    PodGroup,
    start,
    reads=(PODS, NODES, POD_GROUPS, NATIVE_POD_GROUPS, TOPOLOGIES),
    writes=frozenset(
        {
            Write("scheduling.sigs.k8s.io", "podgroups/status", "patch"),
            Write("events.k8s.io", "events", "create"),
        }
    ),
)
