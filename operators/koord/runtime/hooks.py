"""Loads quota hooks: entry points ``koord.quota_hooks`` of installed packages.

A hook that cannot be loaded is logged and counted as failed; the process starts without it.
"""

import logging
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from koord.core.quota.hooks import Hooks, QuotaHook

GROUP: Final = "koord.quota_hooks"
_METHODS: Final = ("check_unit", "on_quota_change", "on_pod_change", "augment_status")

log = logging.getLogger(__name__)


def load_hooks() -> Hooks:
    made: dict[str, QuotaHook] = {}
    failed: list[tuple[str, Exception]] = []
    for point in _find(tuple(sys.path)):
        try:
            hook = point.load()()
            missing = [name for name in _METHODS if not callable(getattr(hook, name, None))]
            if missing:
                raise TypeError(f"it has no {', '.join(missing)}")  # noqa: TRY301 - one way to fail
        except Exception as error:
            log.error("Cannot load a quota hook", extra={"hook": point.name}, exc_info=error)  # noqa: TRY400 - exc_info is given
            failed.append((point.name, error))
        else:
            log.info("Loaded a quota hook", extra={"hook": point.name, "object": point.value})
            made[point.name] = hook
    hooks = Hooks(made)
    for name, reason in failed:
        hooks.fail(name, "load", reason)
    return hooks


@cache
def _find(_path: tuple[str, ...]) -> list[EntryPoint]:
    """Find the hooks on a path; once, because it reads files of every package."""
    return sorted(entry_points(group=GROUP), key=lambda point: point.name)
