"""How handlers are given to Kopf: as low-level event handlers, which write nothing to objects.

Kopf is imported when it is needed, not when this is: that takes longer than reading a cluster, and
what plans need not wait for it.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from koord.api.resource import Resource

if TYPE_CHECKING:
    import kopf


def register_events(
    registry: "kopf.OperatorRegistry",
    resource: type[Resource],
    handler: Callable[..., Awaitable[Any]],
) -> None:
    """Have ``handler`` called for every event of a resource."""
    import kopf  # noqa: PLC0415 - see above

    names = resource.names
    register = kopf.on.event(
        names.group,
        names.version,
        names.plural,
        registry=registry,
        id=names.plural,
    )
    register(handler)
