"""What still belongs to another scheduler after rewriting: it stays as it is, and is reported.

So nothing is lost unseen: kinds, keys and scheduler names in places that no rule knows end up here.
"""

from collections.abc import Iterator
from typing import Any, Final

from koord.api.keys import operators
from koord.api.workloads import Document
from koord_migrate.requested_settings import CHECK, advice_of
from koord_migrate.table import GROUPS, PREFIXES, SCHEDULERS, Action, rows_of, rows_of_keys

_STAYS: Final = "left as it is"
_NAMES: Final = {*SCHEDULERS, "kai", "scheduler-plugins"}
_NAMING: Final = ("schedulerName", "batchScheduler")
_SKIPPED: Final = ("status", "managedFields")
_KEPT: Final = {key for key, row in rows_of_keys().items() if row.action is Action.KEEP}
_FIELDS: Final = {**rows_of("TrainingRuntime"), **rows_of("SparkApplication")}
"""Fields of jobs that make the job's own controller ask another scheduler."""


def find_leftovers(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the path of each, and what to do about it."""
    group = str(document.get("apiVersion", "")).rpartition("/")[0]
    if any(
        group == foreign_group or group.endswith(f".{foreign_group}") for foreign_group in GROUPS
    ):
        yield str(document.get("kind")), f"{_STAYS}: nothing here reads this kind; {CHECK}"
    yield from _walk(document, "")


def _walk(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for element in value:
            yield from _walk(element, path)
    elif isinstance(value, dict):
        for key, element in value.items():
            yield from _check(str(key), element, f"{path}.{key}" if path else str(key))


def _check(key: str, value: Any, path: str) -> Iterator[tuple[str, str]]:
    if key in _SKIPPED or key in _KEPT:
        return
    if any(key.startswith(prefix) for prefix in PREFIXES):
        yield path, f"{_STAYS}: no rule knows this place; {CHECK}, or set it by hand"
    elif key in _FIELDS and value:
        yield path, f"{_STAYS}; {advice_of(_FIELDS[key])}"
    elif key in _NAMING and isinstance(value, str) and value in _NAMES:
        yield path, f"{_STAYS}: {value}; set {operators.SCHEDULER_NAME} if we are to place its pods"
    else:
        yield from _walk(value, path)
