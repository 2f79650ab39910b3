"""How large an object may be, and the refusal of a pod that is too large to be written.

The API server counts the annotations of an object, and etcd all of it. Only the first can be known
before a write: how etcd keeps an object is the API server's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import PodReason

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
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    also_false: ClassVar = MappingProxyType({"Bound": "AnnotationsTooLarge"})
    meaning: ClassVar = (
        "what a pod was given is written in its annotations, which would have more than 256 KiB "
        "then; the message has the bytes. It keeps no room"
    )
    way_out: ClassVar = "shorten the annotations of the pod"
    says: ClassVar = (
        "the annotations of {pod} would have {size:,} bytes with the {add:,} that say what it was "
        "given, and the API server allows {most:,}; it keeps no room, and is tried again after a "
        "growing pause"
    )
    advises: ClassVar = ("Shorten the annotations of {pod} by {_beyond:,} bytes or more.",)
    size: int
    add: int
    most: int = MOST_ANNOTATIONS

    @property
    def _beyond(self) -> int:
        return self.size - self.most


@dataclass(frozen=True, slots=True)
class ObjectTooLarge(PodReason):
    """A pod is so large that it cannot be written any more; ``status`` and answer of the server."""

    code: ClassVar = "ObjectTooLarge"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    also_false: ClassVar = MappingProxyType({"Bound": "ObjectTooLarge"})
    meaning: ClassVar = (
        "a pod is so near the size that etcd takes (about 1.5 MiB) that nothing can be written on "
        "it. It keeps no room. Often only an event can say so"
    )
    way_out: ClassVar = "move long values of `env`, `args` and annotations to a ConfigMap"
    says: ClassVar = (
        "{pod} is so large that what it was given cannot be written on it ({status}: "
        "{message:cut}); it keeps no room, and is tried again after a growing pause"
    )
    advises: ClassVar = (
        "Make {pod} smaller by some KiB; all of an object may have about 1.5 MiB.",
        "Move long values of env, args and annotations to a ConfigMap.",
    )
    status: int
    message: str
