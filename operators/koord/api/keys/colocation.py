"""Batch and mid resources: what nodes say about them, and what is written to nodes."""

from typing import Final

PREFIX: Final = "node.koordinator.sh/"

STRATEGY: Final = f"{PREFIX}colocation-strategy"
"""Node annotation, JSON: settings of over-commitment of the node, over those of the cluster."""
CPU_RECLAIM: Final = f"{PREFIX}cpu-reclaim-ratio"
"""Node label, a decimal number: which part of its CPUs the node gives to batch pods at most."""
MEMORY_RECLAIM: Final = f"{PREFIX}memory-reclaim-ratio"
"""Node label, a decimal number: the same of memory."""
MID_STATIC_CPU: Final = f"{PREFIX}mid-static-cpu-reserved-ratio"
"""Node label, a decimal number: which part of its CPUs is for mid pods, in static mode."""
MID_STATIC_MEMORY: Final = f"{PREFIX}mid-static-memory-reserved-ratio"
"""Node label, a decimal number: the same of memory."""
THIRD_PARTY: Final = f"{PREFIX}thirdPartyAllocations"
"""Node annotation, JSON: what others, such as YARN, use of the batch resources of the node."""
ORIGIN: Final = f"{PREFIX}originExtendedAllocatable"
"""Node annotation, JSON: the batch resources of the node, with what others use."""
CPU_NORMALIZATION: Final = f"{PREFIX}cpu-normalization-ratio"
"""Node annotation, a decimal number: how much faster its CPUs are than those of the base model."""
PUBLISHED: Final = "operators.koordinator.sh/over-commit"
"""Node annotation, JSON: the batch and mid resources that the operators have set."""
