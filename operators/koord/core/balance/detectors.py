"""Which nodes are hot often enough in a row to be acted on.

A node becomes anomalous with so many bad rounds in a row, and normal again with so many good marks,
or after a while. A detector is a value, so that a status keeps it over a restart. Times are seconds
of the caller's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias


class DetectorKind(StrEnum):
    """What a detector counts: rounds with a hot node, or with hot usage of class prod."""

    NODE = "Node"
    PROD = "Prod"


@dataclass(frozen=True, slots=True)
class AnomalyCondition:
    """From how many bad and good marks in a row on a detector changes; ``timeout`` ends it, too."""

    abnormal_from: int = 1
    normal_from: int = 1
    timeout: float = 60.0


def make_condition(
    consecutive_abnormalities: int, consecutive_normalities: int, timeout: float
) -> AnomalyCondition:
    """Return the condition: *more* than so many in a row, but one at once where it says 1."""
    abnormal = consecutive_abnormalities
    return AnomalyCondition(
        1 if abnormal <= 1 else abnormal + 1, consecutive_normalities + 1, timeout
    )


@dataclass(frozen=True, slots=True)
class Detector:
    """The marks of one node."""

    is_anomalous: bool = False
    bad: int = 0
    good: int = 0
    since: float = 0.0
    """When it became anomalous."""
    last_bad: float = 0.0

    def mark(self, condition: AnomalyCondition, now: float, *, is_bad: bool) -> "Detector":
        """Return the detector after a round."""
        before = self.settle(condition, now)
        if is_bad:
            if not before.is_anomalous and before.bad + 1 >= condition.abnormal_from:
                return Detector(is_anomalous=True, since=now, last_bad=now)
            return replace(before, bad=before.bad + 1, good=0, last_bad=now)
        if before.is_anomalous and before.good + 1 >= condition.normal_from:
            return Detector(last_bad=before.last_bad)
        return replace(before, bad=0, good=before.good + 1)

    def settle(self, condition: AnomalyCondition, now: float) -> "Detector":
        """Return the detector at a time: an anomaly ends by itself."""
        if self.is_anomalous and now >= self.since + condition.timeout:
            return replace(self, is_anomalous=False, bad=0, good=0)
        return self


DetectorKey: TypeAlias = tuple[str, DetectorKind, str]
"""Pool, kind and node."""


@dataclass(slots=True)
class Detectors:
    """The detectors of a policy; they are forgotten ``kept`` seconds after their last bad mark."""

    kept: float = 300.0
    _detectors: dict[DetectorKey, Detector] = field(default_factory=dict)

    def values(self) -> Mapping[DetectorKey, Detector]:
        return self._detectors

    def put(self, detectors: Mapping[DetectorKey, Detector]) -> None:
        """Go on with what a status kept."""
        self._detectors = dict(detectors)

    def drop_old(self, now: float) -> None:
        self._detectors = {
            key: detector
            for key, detector in self._detectors.items()
            if now < detector.last_bad + self.kept
        }

    def mark_bad(
        self, keys: Iterable[DetectorKey], condition: AnomalyCondition, now: float
    ) -> frozenset[str]:
        """Mark nodes; return those that are acted on."""
        anomalous = set()
        for key in keys:
            detector = self._detectors.get(key, Detector()).mark(condition, now, is_bad=True)
            self._detectors[key] = detector
            if detector.is_anomalous:
                anomalous.add(key[2])
        return frozenset(anomalous)

    def mark_good(self, key: DetectorKey, condition: AnomalyCondition, now: float) -> None:
        """Give a node that was acted on a good mark."""
        detector = self._detectors.get(key)
        if detector is not None:
            self._detectors[key] = detector.mark(condition, now, is_bad=False)

    def reset(self, key: DetectorKey) -> None:
        self._detectors.pop(key, None)
