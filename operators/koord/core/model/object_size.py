"""How large an object may be, and the refusal of a pod that is too large to be written.

The API server counts the annotations of an object, and etcd all of it. Only the first can be known
before a write: how etcd keeps an object is the API server's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from koord.core.model.reasons import PodReason
from koord.core.model.text import cut

MOST_ANNOTATIONS: Final = 256 * 1024
"""Bytes of keys and values that the API server allows for all annotations of an object."""

MOST_TO_PLAN: Final = MOST_ANNOTATIONS - 8 * 1024
"""Bytes of annotations with which a pod is planned: room is left for what it is given.

Otherwise others would go for a pod that cannot be bound then.
"""


def count_annotations(annotations: Mapping[str, str]) -> int:
    """Return the bytes of annotations, as the API server counts them."""
    return sum(_count(key) + _count(value) for key, value in annotations.items())


def _count(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


@dataclass(frozen=True, slots=True)
class AnnotationsTooLarge(PodReason):
    """With what is to be written on it, a pod has more annotations than the API server allows.

    ``size`` is in bytes, and so is what the operators would ``add``.
    """

    code: ClassVar = "AnnotationsTooLarge"
    also_false: ClassVar = MappingProxyType({"Bound": "AnnotationsTooLarge"})
    size: int
    add: int
    most: int = MOST_ANNOTATIONS

    def _text(self) -> str:
        return (
            f"the annotations of {self.pod} would have {self.size:,} bytes with the {self.add:,} "
            f"that say what it was given, and the API server allows {self.most:,}; it keeps no "
            "room, and is tried again after a growing pause"
        )

    def _advice(self) -> tuple[str, ...]:
        return (
            f"Shorten the annotations of {self.pod} by {self.size - self.most:,} bytes or more.",
        )


@dataclass(frozen=True, slots=True)
class ObjectTooLarge(PodReason):
    """A pod is so large that it cannot be written any more; ``status`` and answer of the server."""

    code: ClassVar = "ObjectTooLarge"
    also_false: ClassVar = MappingProxyType({"Bound": "ObjectTooLarge"})
    status: int
    message: str

    def _text(self) -> str:
        return (
            f"{self.pod} is so large that what it was given cannot be written on it "
            f"({self.status}: {cut(self.message)}); it keeps no room, and is tried again after a "
            "growing pause"
        )

    def _advice(self) -> tuple[str, ...]:
        return (
            f"Make {self.pod} smaller by some KiB; all of an object may have about 1.5 MiB.",
            "Move long values of env, args and annotations to a ConfigMap.",
        )
