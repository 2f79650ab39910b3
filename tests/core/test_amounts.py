"""Amounts as people read them."""

from __future__ import annotations

import pytest

from koord.core.model.units import approximate, tell_amount


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("kubernetes.io/batch-cpu", 4000, "4000 (4 CPUs)"),
        ("kubernetes.io/mid-cpu", 1000, "1000 (1 CPU)"),
        ("kubernetes.io/batch-cpu", 500, "500 (0.5 CPUs)"),
        ("kubernetes.io/batch-memory", 4 << 30, "4Gi"),
        ("cpu", 1500, "1500m"),
        ("nvidia.com/gpu", 8, "8"),
    ],
)
def test_thousandths_of_cpus_are_told_as_cpus_too(resource: str, amount: int, text: str) -> None:
    assert tell_amount(resource, amount) == text
    assert approximate(resource, amount) == text
