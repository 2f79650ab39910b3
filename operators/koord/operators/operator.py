"""What an operator is: a name, a custom resource, and a function that puts its parts together.

Nothing is known here of any of them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from koord.api.resource import Resource
from koord.kube.status import AT_ONCE, Pace
from koord.kube.write_check import Write

if TYPE_CHECKING:
    from collections.abc import Callable

    from koord.controllers.validation import ValidationSink
    from koord.kube.kind import AnyKind
    from koord.runtime.wiring import Parts


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator, which a process runs or not; ``name`` is that of ``koord run --operator``."""

    name: str
    resource: type[Resource] | None = None
    """The custom resource that it validates, and that must be installed."""
    start: "Callable[[Parts], ValidationSink | None] | None" = None
    """Adds what else the operator does, and may return where the verdicts of validation go.

    Without such a sink they go into the condition ``Accepted``.
    """
    pace: Pace = AT_ONCE
    """How that condition gives way to bindings."""
    reads: "tuple[AnyKind, ...]" = ()
    """The kinds that it reflects."""
    writes: frozenset[Write] = frozenset()
    """What it writes, as its role grants it; the Lease and the key are checked in use."""
