"""What priority a class of a name stands for, for pods that are known by their template only."""

from koord.core.engine.state_view import StateView
from koord.core.reservation.plugin import Reservations


def find_priority(view: StateView, name: str) -> int:
    """Return the priority of a PriorityClass; 0 for one that is not known."""
    priority_class = view.plugin(Reservations).classes.get(name)
    return 0 if priority_class is None else priority_class.value
