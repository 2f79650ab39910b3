"""What an operator is: a name, a custom resource, and a function that puts its parts together.

Nothing is known here of any of them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from koord.api.resource import Resource
from koord.kube.write_check import Write

if TYPE_CHECKING:
    from collections.abc import Callable

    from koord.kube.kind import AnyKind
    from koord.runtime.wiring import Parts


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator, which a process runs or not; ``name`` is that of ``koord run --operator``."""

    name: str
    resource: type[Resource] | None
    """The custom resource that it handles, and that must be installed."""
    start: "Callable[[Parts], None]"
    """Adds to a process what the operator does."""
    reads: "tuple[AnyKind, ...]" = ()
    """The kinds that it reflects."""
    writes: frozenset[Write] = frozenset()
    """What it writes, as its role grants it; the Lease and the key are checked in use."""
