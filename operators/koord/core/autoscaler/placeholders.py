"""Placeholders for members that lack nodes: values; no client, no clock."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScaleUpPlaceholder:
    """The one for the pod with a ``uid``; ``namespace`` is that of the pod, empty if not known."""

    uid: str
    namespace: str = ""
