"""Adapters call our functions with the input of a case; they contain no rule.

One module per area, each with ``ADAPTERS``: kind -> function from the input of a case to the fields
of its answer. Everything runs as ``compat: koordinator``.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tests.conformance.adapters import (
    balance,
    colocation,
    device,
    device_cpus,
    device_vendors,
    elasticquota,
    gang,
    load,
    node_agents,
    preemption,
    queue,
    reservation,
    topology,
)

Adapter: TypeAlias = Callable[[Any], Mapping[str, Any]]

AREAS: Mapping[str, Mapping[str, Adapter]] = {
    "device": {**device.ADAPTERS, **device_cpus.ADAPTERS, **device_vendors.ADAPTERS},
    "elasticquota": elasticquota.ADAPTERS,
    "gang": gang.ADAPTERS,
    "preemption": preemption.ADAPTERS,
    "queue": queue.ADAPTERS,
    "reservation": reservation.ADAPTERS,
    "rest": {
        **balance.ADAPTERS,
        **colocation.ADAPTERS,
        **load.ADAPTERS,
        **node_agents.ADAPTERS,
    },
    "topology": topology.ADAPTERS,
}
"""Area -> kind -> adapter. A kind of a listed area that is not optional must have one."""
