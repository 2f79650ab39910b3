"""What the labels of namespaces say of their Jobs, and which of them say something else by now.

A label concerns all Jobs of a namespace, and whoever may write it may change it all the time: that
of one namespace is looked at now and then. Knows no Jobs.
"""

from collections.abc import Callable
from typing import Final

LABEL_SECONDS: Final = 5.0
"""How long the label of a namespace is not looked at after it has changed."""


class NamespaceLabels:
    """The labels of namespaces with Jobs; ``read`` returns that of one as it is now."""

    def __init__(self, read: Callable[[str], str]) -> None:
        self._read = read
        self._labels: dict[str, str] = {}
        self._changed_at: dict[str, float] = {}
        """Namespace -> when its label has changed lately."""
        self._is_due = False
        """Whether one has changed again since."""

    def note(self, namespace: str) -> None:
        """Have the label of a namespace followed."""
        if namespace not in self._labels:
            self._labels[namespace] = self._read(namespace)

    def get(self, namespace: str) -> str:
        return self._labels.get(namespace, "")

    def take_changed(self, now: float) -> list[str]:
        """Return the namespaces of which the label says something else; from now on it counts."""
        self._changed_at = {
            name: at for name, at in self._changed_at.items() if at <= now < at + LABEL_SECONDS
        }
        changed = [name for name, label in self._labels.items() if self._read(name) != label]
        taken = [name for name in changed if name not in self._changed_at]
        self._is_due = len(taken) < len(changed)
        for name in taken:
            self._labels[name], self._changed_at[name] = self._read(name), now
        return taken

    def dues(self) -> list[float]:
        """Return when labels are to be looked at again."""
        changed_at = self._changed_at.values() if self._is_due else ()
        return [at + LABEL_SECONDS for at in changed_at]
