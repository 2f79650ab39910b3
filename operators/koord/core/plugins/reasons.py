"""Why volumes keep a pod from being placed."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from koord.core.model.reasons import PodReason


class VolumeProblem(StrEnum):
    """What is wrong with a volume claim."""

    NOT_FOUND = "NotFound"
    LOST = "Lost"
    """Its volume is gone, according to the volume controller."""
    TERMINATING = "Terminating"
    NOT_FOR_POD = "NotForPod"
    """It has the name of an ephemeral volume's claim, but was not made for the pod."""
    NO_VOLUME = "NoVolume"
    """It is bound to a volume that does not exist."""
    UNBOUND = "Unbound"
    """Its storage class binds before the first pod is placed, and it is not bound."""


_TEXTS: Final = {
    VolumeProblem.NOT_FOUND: "{claim} not found: {pod} waits until it exists",
    VolumeProblem.LOST: '{claim} bound to non-existent persistentvolume "{volume}"',
    VolumeProblem.TERMINATING: "{claim} is being deleted, and {pod} uses it",
    VolumeProblem.NOT_FOR_POD: "{claim} was not created for {pod}, but has the name of its volume",
    VolumeProblem.NO_VOLUME: '{claim} is bound to persistentvolume "{volume}", which does not '
    "exist",
    VolumeProblem.UNBOUND: "pod has unbound immediate PersistentVolumeClaims: {pod} waits until "
    "{claim} is bound",
}


@dataclass(frozen=True, slots=True)
class VolumeNotReady(PodReason):
    """A volume claim that a pod uses cannot be used yet; ``volume`` is what it names, if any."""

    code: ClassVar = "VolumeNotReady"
    claim: str
    problem: VolumeProblem
    volume: str = ""

    def _text(self) -> str:
        claim = f'persistentvolumeclaim "{self.claim.partition("/")[2]}"'
        return _TEXTS[self.problem].format(claim=claim, pod=self.pod, volume=self.volume)
