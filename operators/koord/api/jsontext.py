"""Annotations whose value is JSON: one reader for all of them.

The API server takes any text in an annotation, so what is wrong with it comes to light only here.
What the annotations mean is not known here; see `annotations` for which there are.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Generic

from pydantic import TypeAdapter

from koord.api.parse import InvalidObject, Problem, T, UnknownFields, cut, format_field, parse_value

MAX_TEXT: Final = 64 * 1024
"""Longer texts are refused unread; all annotations of an object together hold 256 KiB."""


@dataclass(frozen=True, slots=True)
class JsonAnnotation(Generic[T]):
    """An annotation by its key, with the type of what its text says."""

    key: str
    adapter: TypeAdapter[T] = field(repr=False)
    when_empty: T | None = field(default=None, hash=False)
    """What an empty text says; mostly the same as no annotation."""

    def read(
        self, annotations: Mapping[str, str], *, unknown_fields: UnknownFields = "ignore"
    ) -> T | InvalidObject | None:
        """Return what the annotation says, what is wrong with it, or None if there is none.

        The result is shared between all objects with the same text; nobody may change it.
        """
        text = annotations.get(self.key)
        if not text:
            return None if text is None else self.when_empty
        found: T | InvalidObject = _read(self, text, unknown_fields)
        return found


@lru_cache(maxsize=1024)
def _read(annotation: JsonAnnotation[Any], text: str, unknown_fields: UnknownFields) -> Any:
    location = ("metadata", "annotations", annotation.key)
    try:
        value = _decode(text)
    except (ValueError, RecursionError) as error:
        return InvalidObject((Problem(format_field(location), cut(text), f"is no JSON: {error}"),))
    return parse_value(annotation.adapter, value, unknown_fields=unknown_fields, at=location)


def _decode(text: str) -> Any:
    if len(text) > MAX_TEXT:
        raise ValueError(f"it is longer than {MAX_TEXT} characters")
    return json.loads(text, object_pairs_hook=_join_lists, parse_constant=_refuse_constant)


def _join_lists(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Keep what JSON would drop: published partition tables name a size twice."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        earlier = made.get(key)
        if isinstance(earlier, list) and isinstance(value, list):
            made[key] = [*earlier, *value]
        else:
            made[key] = value
    return made


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")
