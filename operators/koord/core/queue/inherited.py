"""What is in effect for each queue of a cluster: as quotas say it, from the root to the leaf.

Knows quotas by name, parent and what they say of queues; neither units nor turns.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from koord.core.queue.settings import ORDERING, QueueSettings, settle
from koord.core.quota.catalog import QuotaCatalog
from koord.core.quota.model import QuotaSpec

_MOST_LEVELS: Final = 64
_PARKING: Final = frozenset({"max_pending", "max_pending_per_user"})
_BOUNDING: Final = _PARKING | {"max_running", "max_running_per_user", "stop"}


class SettingsOfQueues:
    """The settings of all queues; ``default`` is what holds where no quota says anything."""

    def __init__(
        self, catalog: QuotaCatalog, default: Mapping[str, Any], *, is_compat: bool
    ) -> None:
        self._catalog, self._default, self._is_compat = catalog, default, is_compat
        self._tried: Mapping[str, Any] = {}
        """What all queues follow, for a question."""
        self._of: dict[str, QueueSettings] = {}
        self.edits: object = None
        """Of the quotas of which these are the settings."""
        settle(default, (), compat=is_compat)  # what cannot be in effect is an error at once
        self._read()

    def update(self) -> None:
        """Read anew what quotas say, if any was edited."""
        if self.edits != self._catalog.edits:
            self.edits = self._catalog.edits
            self._read()

    def of(self, queue: str) -> QueueSettings:
        """Return what is in effect for a queue."""
        settings = self._of.get(queue)
        if settings is None:
            path = [*(spec.queue for spec in self._specs_from_root(queue)), self._tried]
            settings = self._of[queue] = settle(self._default, path, compat=self._is_compat)
        return settings

    def try_out(self, values: Mapping[str, Any]) -> None:
        """Have all queues follow these, whatever their quotas say."""
        self._tried = values
        self._read()

    def path_of(self, queue: str) -> Collection[str]:
        """Return a queue and all quotas above."""
        return [spec.name for spec in self._specs_from_root(queue)] or [queue]

    def _specs_from_root(self, queue: str) -> list[QuotaSpec]:
        path: list[QuotaSpec] = []
        spec = self._catalog.registry.get(queue)
        while spec is not None and len(path) < _MOST_LEVELS:
            path.insert(0, spec)
            spec = self._catalog.registry.get(spec.parent)
        return path

    def _read(self) -> None:
        self._of = {}
        specs = self._catalog.registry.specs.values()
        levels = [self._default, self._tried, *(spec.queue for spec in specs)]
        self.is_limiting = any(levels)
        """Whether anybody says anything of queues."""
        self.is_ordering = self.is_limiting and (
            not self._is_compat or any(ORDERING & values.keys() for values in levels)
        )
        """Whether turns may be others than by priority and time."""
        self.is_parking = any(_PARKING & level.keys() for level in levels)
        """Whether some queue limits how many units wait."""
        self.is_bounding = any(_BOUNDING & level.keys() for level in levels)
        """Whether some queue limits how many units wait or run."""
