"""Causes: why a filter refuses a node for a pod.

A domain declares its causes beside the filter that yields them. A cause is a string, as it appears
in JSON and metrics, with the properties that the framework needs.
"""

from typing import Final, Self

from koord.core.model.text import cut
from koord.core.model.units import PODS


class Cause(str):
    """One cause, its place in the order of checks, and its texts.

    ``rank`` orders checks as kube-scheduler runs them; a node is reported under the first check it
    fails. ``text`` is the message of kube-scheduler with ``{resource}`` or ``{detail}``; ``advice``
    says how to make the ``{nodes}`` feasible. An ``is_transient`` cause may end when other pods of
    the same unit are placed. With ``by_detail``, nodes are counted per detail; with ``is_held``,
    what is lacking is held by others, who are named. With ``keeps_out`` pods of others keep it from
    a node by their own rules: which nodes these concern, also new ones, is up to their owners. An
    ``is_lasting`` cause follows from labels alone: it holds until somebody edits pod or node.
    """

    __slots__ = (
        "advice",
        "by_detail",
        "is_held",
        "is_lasting",
        "is_transient",
        "keeps_out",
        "rank",
        "text",
    )

    rank: int
    text: str
    advice: str
    is_transient: bool
    by_detail: bool
    is_held: bool
    keeps_out: bool
    is_lasting: bool

    def __new__(  # noqa: PLR0913 - a cause is declared once, by name
        cls,
        code: str,
        rank: int,
        text: str = "",
        advice: str = "",
        *,
        is_transient: bool = False,
        by_detail: bool = False,
        is_held: bool = False,
        keeps_out: bool = False,
        is_lasting: bool = False,
    ) -> Self:
        cause = super().__new__(cls, code)
        cause.rank, cause.text, cause.advice = rank, text or code, advice
        cause.is_transient, cause.by_detail, cause.is_held = is_transient, by_detail, is_held
        cause.keeps_out, cause.is_lasting = keeps_out, is_lasting
        return cause

    def __str__(self) -> str:
        return str.__str__(self)

    def __deepcopy__(self, _: object) -> Self:
        return self

    def describe(self, resource: str = "", detail: str = "") -> str:
        """Return the message of kube-scheduler."""
        if resource == PODS:
            return "Too many pods"
        return self.text.format(resource=resource, detail=cut(detail))


RESOURCE: Final = Cause("Insufficient", 40, "Insufficient {resource}")
"""Not enough of a resource is left; a node may lack several."""
