"""A write to another object than the pod, which has to be there before the pod is bound (PreBind).

A value: what it means is known to the plugin that makes it, how it is sent to ``kube``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ObjectWrite:
    """Sets fields of the object at ``path`` of the API, if it is still as it was planned.

    Keys are JSON pointers, values what is there afterwards (``patch``) and before (``test``); None
    stands for nothing. A field that is patched and not tested must have been absent before. So the
    write can be repeated, told from the object, and taken back: whoever plans again after a crash
    finds it done.
    """

    path: str
    patch: Mapping[str, Any]
    test: Mapping[str, Any] = field(default_factory=dict)

    @property
    def before(self) -> Mapping[str, Any]:
        """All that must be there before it."""
        return {**dict.fromkeys(self.patch), **self.test}

    @property
    def undone(self) -> "ObjectWrite":
        """The write that takes it back, as long as nobody has changed the fields since."""
        before = self.before
        return ObjectWrite(
            self.path, {at: before[at] for at in self.patch}, {**before, **self.patch}
        )
