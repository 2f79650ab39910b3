"""What Kopf keeps of objects to compare them with later: nothing.

Our handlers take every event as it is. What Kopf does for those that want to know what has changed,
a deep copy of each object among others, took a third of its time. Imports Kopf, which takes long:
to be imported in its thread.
"""

from collections.abc import Iterable

import kopf
from typing_extensions import override


class NoDiffBase(kopf.DiffBaseStorage):
    """Stores nothing, and finds nothing changed."""

    @override
    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[kopf.FieldSpec] | None = None
    ) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    @override
    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    @override
    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        pass
