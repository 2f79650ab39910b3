"""Koordinator's priority class of a pod."""

import pytest

from koord.core.model.koordinator_class import (
    PRIORITY_CLASS_LABEL,
    QOS_LABEL,
    KoordinatorClass,
    find_class,
    is_best_effort,
)
from koord.core.model.pods import PodShape

PROD, MID, BATCH, FREE = KoordinatorClass


@pytest.mark.parametrize(
    ("label", "priority", "qos", "best_effort", "expected"),
    [
        (None, 0, "", False, PROD),
        (None, 0, "", True, BATCH),
        ("koord-free", 9500, "LSE", False, FREE),
        ("koord-what", 5500, "", False, PROD),
        ("koord-what", 5500, "", True, BATCH),
        (None, 9000, "", True, PROD),
        (None, 9999, "BE", True, PROD),
        (None, 10000, "", True, BATCH),
        (None, 7999, "", False, MID),
        (None, 5000, "", False, BATCH),
        (None, 3999, "", False, FREE),
        (None, 4000, "BE", False, BATCH),
        (None, 0, "LS", True, PROD),
        (None, 0, "SYSTEM", True, PROD),
        (None, 0, "what", True, BATCH),
    ],
)
def test_label_then_priority_then_quality_of_service(
    label: str | None,
    priority: int,
    qos: str,
    best_effort: bool,  # noqa: FBT001 - a parameter of the table
    expected: KoordinatorClass,
) -> None:
    labels = {QOS_LABEL: qos} if qos else {}
    if label is not None:
        labels[PRIORITY_CLASS_LABEL] = label
    assert find_class(labels, priority, is_best_effort=best_effort) is expected


def test_best_effort_pods_request_and_limit_neither_cpu_nor_memory() -> None:
    gpu = (("nvidia.com/gpu", 1), ("pods", 1))
    assert is_best_effort(PodShape(gpu), {"nvidia.com/gpu": 1})
    assert not is_best_effort(PodShape(gpu), {"memory": 1})
    assert not is_best_effort(PodShape((("cpu", 1), ("pods", 1))), {})
    overhead = (("cpu", 250),)
    assert is_best_effort(PodShape((("cpu", 250), ("pods", 1)), overhead=overhead), {})
    assert not is_best_effort(PodShape((("cpu", 300), ("pods", 1)), overhead=overhead), {})
