"""What domains bring to the planner: kinds of objects, plugins, what they read of pods.

Knows no domain by name, and nothing of operators: the command line plans with it, too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from koord.core.engine.plugin import Plugin
from koord.kube.kind import AnyKind, PodReader

T = TypeVar("T")


class PlanOptions:
    """How it is planned: values that domains look up by their class, which make defaults."""

    def __init__(self, *values: object, compat: bool = False) -> None:
        self.compat = compat
        """Whether Koordinator's behaviour is followed where ours deliberately differs."""
        self._values = {type(value): value for value in values}

    def of(self, kind: type[T]) -> T:
        value = self._values.get(kind)
        return value if isinstance(value, kind) else kind()


@dataclass(frozen=True, slots=True)
class Planning:
    """The part of one domain."""

    kinds: tuple[AnyKind, ...] = ()
    """The kinds that plans depend on."""
    make_plugins: Callable[[PlanOptions], Iterable[Plugin]] = lambda _: ()
    """Returns new plugins for one cluster state."""
    more_kinds: Callable[[PlanOptions], tuple[AnyKind, ...]] = lambda _: ()
    """Returns further kinds, which are read with some options only."""
    pod_reader: PodReader | None = None
    reads_pods: Callable[[PlanOptions], bool] = lambda _: True
    """Whether the reader is needed with some options."""
