"""Why one node does not take a pod: the causes that filters name.

A domain declares its causes beside the filter that yields them. A cause is the text that appears in
JSON and metrics, with what the framework has to know about it.
"""

from typing import Final, Self

from koord.core.text import cut
from koord.core.units import PODS


class Cause(str):
    """The name of a cause, its place in the order of checks, and its texts.

    ``rank`` orders checks as kube-scheduler runs them; a node is reported under the first check it
    fails. ``text`` is what kube-scheduler writes, with ``{resource}`` or ``{detail}`` in it;
    ``advice`` says what would open the ``{nodes}``. ``is_transient`` causes may end when other pods
    of the same unit are placed. Nodes are counted apart ``by_detail`` where people act on it.
    """

    __slots__ = ("advice", "by_detail", "is_transient", "rank", "text")

    rank: int
    text: str
    advice: str
    is_transient: bool
    by_detail: bool

    def __new__(  # noqa: PLR0913 - a cause is declared once, by name
        cls,
        code: str,
        rank: int,
        text: str = "",
        advice: str = "",
        *,
        is_transient: bool = False,
        by_detail: bool = False,
    ) -> Self:
        cause = super().__new__(cls, code)
        cause.rank, cause.text, cause.advice = rank, text or code, advice
        cause.is_transient, cause.by_detail = is_transient, by_detail
        return cause

    def __str__(self) -> str:
        return str.__str__(self)

    def __deepcopy__(self, _: object) -> Self:
        return self

    def describe(self, resource: str = "", detail: str = "") -> str:
        """Return why a node does not take a pod, in the words of kube-scheduler."""
        if resource == PODS:
            return "Too many pods"
        return self.text.format(resource=resource, detail=cut(detail))


RESOURCE: Final = Cause("Insufficient", 40, "Insufficient {resource}")
"""A resource of which the node has too little left; a node may lack several."""
