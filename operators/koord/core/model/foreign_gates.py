"""Scheduling gates of other controllers: which of them are known, and what each waits for."""

from collections.abc import Iterable
from typing import Final

_KUEUE: Final = "kueue.x-k8s.io/"
_TURNS: Final = {
    f"{_KUEUE}admission": "it is the turn of Kueue, which has not admitted the job",
    f"{_KUEUE}topology": "it is the turn of Kueue, which has not chosen nodes for the job",
    f"{_KUEUE}elastic-job": "it is the turn of Kueue, which has not admitted the new size",
}


def tell_turns(gates: Iterable[str]) -> tuple[str, ...]:
    """Return whose turn it is, of gates that are known: what comes first, first."""
    there = set(gates)
    return tuple(turn for gate, turn in _TURNS.items() if gate in there)


def is_of_kueue(gates: Iterable[str]) -> bool:
    return any(gate.startswith(_KUEUE) for gate in gates)
