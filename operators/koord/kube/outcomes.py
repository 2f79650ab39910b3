"""What became of one write to one pod, as values.

``Done`` and ``Unknown`` leave the pod's place taken; all others give it up.
"""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Done:
    """The write is in force, whether by this request or by one before it."""


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod is not ours to place any more.

    It was deleted, is being deleted, is another one of the same name, or somebody else took our
    gate off and left it to its own scheduler.
    """


@dataclass(frozen=True, slots=True)
class BoundElsewhere:
    """The pod is bound to ``node``, or was released for that node only."""

    node: str


@dataclass(frozen=True, slots=True)
class StillGated:
    """A scheduling gate stands on the pod, so it cannot be bound."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The server does not accept the write: RBAC, an admission policy, or a defect of ours."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer that tells could be had in time; the write may still come into force.

    ``status`` is that of the last error answered, 0 if there was no answer.
    """

    status: int
    message: str


Outcome: TypeAlias = Done | PodGone | BoundElsewhere | StillGated | Refused | Unknown
