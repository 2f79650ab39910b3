"""Finds the hooks of quotas: installed packages name them as entry points ``koord.quota_hooks``.

One that cannot be loaded keeps nothing from starting; it is logged, and counted as failed.
"""

import logging
from importlib.metadata import entry_points
from typing import Final

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
