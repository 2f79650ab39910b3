"""Finds the hooks of quotas: installed packages name them as entry points ``koord.quota_hooks``.

One that cannot be loaded keeps nothing from starting; it is logged, and counted as failed.
"""

import logging
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from koord.core.quota.hooks import Hooks, QuotaHook

GROUP: Final = "koord.quota_hooks"
_METHODS: Final = ("check_unit", "on_quota_change", "on_pod_change", "augment_status")

log = logging.getLogger(__name__)


def load_hooks() -> Hooks:
    """Return every hook that is installed, each made by calling what its entry point names."""
    made: dict[str, QuotaHook] = {}
    failed: list[tuple[str, Exception]] = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            hook = point.load()()
            missing = [name for name in _METHODS if not callable(getattr(hook, name, None))]
            if missing:
                raise TypeError(f"it has no {', '.join(missing)}")  # noqa: TRY301 - one way to fail
        except Exception as error:
            log.error("a quota hook cannot be loaded", extra={"hook": point.name}, exc_info=error)  # noqa: TRY400 - it is given
            failed.append((point.name, error))
        else:
            log.info("a quota hook is in use", extra={"hook": point.name, "object": point.value})
            made[point.name] = hook
    hooks = Hooks(made)
    for name, reason in failed:
        hooks.fail(name, "load", reason)
    return hooks


class HookCollector(Collector):
    """Reads the failures of hooks."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    @override
    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "koord_quota_hook_failures",
            "How often a quota hook failed; what it would have checked was let through.",
            labels=["hook", "operation"],
        )
        for (name, operation), failure in sorted(self._hooks.failures.items()):
            family.add_metric([name, operation], failure.count)
        yield family
