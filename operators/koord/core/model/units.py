"""Names and canonical units of resources, so that all arithmetic is on exact integers.

``cpu`` counts milli-CPU; ``memory``, ``ephemeral-storage``, ``hugepages-*`` and the memory of GPUs,
of batch and of mid pods count bytes; every other resource counts whole pieces. Quantities are
parsed elsewhere.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

CPU: Final = "cpu"
MEMORY: Final = "memory"
ACCELERATOR: Final = "nvidia.com/gpu"
"""The resource that is packed onto few nodes by default, so that whole nodes stay free."""
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

Amounts: TypeAlias = Mapping[str, int]
"""Resource name -> amount in its canonical unit."""

AMOUNT_LIMIT: Final = 1 << 48
"""Larger amounts (281 TB, 2.8·10¹¹ CPU) are cut to it, so that the sum over thousands of pods on a
node fits into 64 bits."""

MOST_CPUS: Final = (1 << 16) * 1000
"""No machine has more, in milli-CPU."""

UNLIMITED: Final = "unlimited"
UNLIMITED_FROM: Final = 10**15
"""No cluster has as much of anything; ``1P`` is what people write for a limit that is none."""
_BINARY: Final = ("Ki", "Mi", "Gi", "Ti", "Pi")
_LONGEST_AMOUNT: Final = 7
_IN_MILLI_CPU: Final = ("/batch-cpu", "/mid-cpu")
_UNITS: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def is_usable(resource: str, amount: int) -> bool:
    """Whether something on one machine can use so much."""
    return 0 <= amount < (MOST_CPUS if resource == CPU else AMOUNT_LIMIT)


def is_extended(resource: str) -> bool:
    """Whether a resource is an extended one, as devices are: these have a domain in their name."""
    return "/" in resource


def is_in_bytes(resource: str) -> bool:
    """Whether amounts of ``resource`` are bytes."""
    if resource in {MEMORY, EPHEMERAL_STORAGE} or resource.startswith("hugepages-"):
        return True
    return resource.endswith(("/gpu-memory", "/batch-memory", "/mid-memory"))


def format_amount(resource: str, amount: int) -> str:
    """Write an amount as a Kubernetes quantity: ``1500m`` CPU, ``4Gi`` memory, ``8`` pieces."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if is_in_bytes(resource):
        return _format_bytes(amount)
    return str(amount)


def tell_amount(resource: str, amount: int) -> str:
    """Write an amount for people; batch and mid CPUs are thousandths: ``4000 (4 CPUs)``."""
    exact = format_amount(resource, amount)
    if not resource.endswith(_IN_MILLI_CPU):
        return exact
    return f"{exact} ({amount / 1000:g} CPU{'' if amount == 1000 else 's'})"


def approximate(resource: str, amount: int, *, down: bool = False) -> str:
    """Round bytes to a tenth of a unit; other amounts are exact.

    Requests are rounded up and free amounts down, so that too little never looks like enough.
    """
    exact = tell_amount(resource, amount)
    if not is_in_bytes(resource) or len(exact) <= _LONGEST_AMOUNT:
        return exact
    unit, size = next(
        (unit_and_size for unit_and_size in _UNITS if abs(amount) >= unit_and_size[1]), _UNITS[-1]
    )
    tenths = amount * 10 // size if down else -(-amount * 10 // size)
    return f"{tenths / 10:.1f}{unit}"


def is_unlimited(amount: int) -> bool:
    """Whether a limit limits nothing."""
    return amount >= UNLIMITED_FROM


def format_limit(resource: str, amount: int) -> str:
    """Write a limit for people: as an amount, or as ``unlimited``."""
    return UNLIMITED if is_unlimited(amount) else format_amount(resource, amount)


def _format_bytes(amount: int) -> str:
    unit = ""
    for suffix in _BINARY:
        if amount == 0 or amount % 1024:
            break
        amount, unit = amount // 1024, suffix
    return f"{amount}{unit}"
