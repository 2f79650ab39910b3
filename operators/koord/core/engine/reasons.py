"""Why nodes refuse pods, and why a unit does not fit on the nodes."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from koord.core.engine.cause import RESOURCE, Cause
from koord.core.model.patience import Hanging, tell_hanging
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import ASK, MAX_SENTENCES, Reason, ReasonContext
from koord.core.model.text import MAX_LISTED, named, plural
from koord.core.model.units import PODS, tell_amount

_NODE_CONDITIONS: Final = "{node.kubernetes.io/"
"""Prefix of taints that Kubernetes sets for node conditions."""
_OF_NODES: Final = "node(s) "
"""How kube-scheduler begins the text of a cause."""
_VERBS: Final = ("were ", "had ", "didn't ", "rejected ")
"""What follows in those that are sentences."""
_MOST_USERS: Final = 2


@dataclass(frozen=True, slots=True)
class CauseCount:
    """How many nodes refuse for one cause; ``resource`` is set for ``RESOURCE`` only."""

    cause: Cause
    nodes: int
    resource: str = ""
    detail: str = ""

    def text(self) -> str:
        """Return the cause with its count, as kube-scheduler does: ``3 Insufficient cpu``."""
        return f"{self.nodes} {self.cause.describe(self.resource, self.detail)}"

    def clause(
        self, resource: str, amount: str, users: Sequence[str], holders: Sequence[str] = ()
    ) -> str:
        """Return the cause as a predicate; ``users`` have the ``amount`` of ``resource``.

        ``holders`` have what else is held.
        """
        is_one = self.nodes == 1
        if self.resource == PODS:
            return "takes no more pods" if is_one else "take no more pods"
        if self.cause is RESOURCE:
            is_asked = self.resource == resource
            lacks = f"{'lacks' if is_one else 'lack'}{f' {amount}' if is_asked else ''} free"
            who = f" ({named(users, _MOST_USERS)})" if users and is_asked else ""
            return f"{lacks} {self.resource}{who}"
        text = self.cause.describe(detail=self.detail).removeprefix(_OF_NODES)
        if holders and self.cause.is_held:
            text += f" ({named(holders, _MOST_USERS)})"
        if not text.startswith(_VERBS):
            return f"{'refuses' if is_one else 'refuse'}: {text}"
        return f"was {text.removeprefix('were ')}" if is_one and text.startswith("were ") else text


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The ``nodes`` that take none of the pods that fit, each counted once in ``refused``.

    ``short`` are the first of those that lack the scarcest resource, and ``users`` who has it;
    ``hanging`` are pods there that should have gone long ago.
    """

    nodes: int
    refused: tuple[CauseCount, ...]
    short: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    """The first of those that lack something else that others hold, and who holds it."""
    holders: tuple[str, ...] = ()
    hanging: tuple[Hanging, ...] = ()


@dataclass(frozen=True, slots=True)
class Closed:
    """Nodes that have room for a pod, and the one cause that keeps it away from them."""

    cause: Cause
    detail: str
    nodes: tuple[str, ...]

    def advice(self) -> str:
        nodes = f"{plural(len(self.nodes), 'node')} with room ({named(self.nodes)})"
        if self.detail.startswith(_NODE_CONDITIONS):
            return f"Check the conditions of {nodes}, tainted {self.detail}."
        return self.cause.advice.format(detail=self.detail, nodes=nodes)


class NewNodes(ReasonContext):
    """What is known of nodes that are not there yet, for a pod that none which is there takes."""

    __slots__ = ()

    @property
    @abstractmethod
    def may_hold(self) -> bool:
        """Whether one of them could take it: then it waits for room, and nobody has to edit it."""


@dataclass(frozen=True, slots=True)
class InsufficientNodes(Reason):
    """The pods of a unit do not all fit.

    ``want`` pods must be placed, ``fit`` of them could be now, of a cluster of ``nodes`` nodes.
    ``refused`` says what the nodes lack for the first member that does not fit, ``first``, once
    those are placed; ``elsewhere`` leaves out the nodes of those (None: not looked at).
    ``resource`` is the scarcest one (empty: none is short), ``request`` what one pod requests of
    it, ``more_nodes`` how many more empty nodes, as large as the largest one, would be enough (0:
    no node that is open takes such a pod even if empty; None: it depends on other pods).
    """

    code: ClassVar = "InsufficientNodes"
    reason_class: ClassVar = ReasonClass.ROOM
    is_capacity: ClassVar = True
    is_unschedulable: ClassVar = True
    rests_on: ClassVar = frozenset({"nodes"})
    meaning: ClassVar = (
        "the members do not all fit; the message says how many fit, which checks the nodes fail "
        "for the first pod that does not fit, and how many more empty nodes would be enough"
    )
    way_out: ClassVar = "wait, ask for less, or ask the administrators for more nodes"
    says: ClassVar = (
        "{_is_one:?No room for {first}|Room for {fit} of {want} pods}. {_nodes_lack}."
        "{_hanging:? {_hanging}.}{_is_too_much:? {first} requests {amount}.}"
        "{more_nodes:? {more_nodes:# more empty node} as large as the largest one would be enough."
        "|{_is_too_large:? No node could take it even if empty.}}"
    )
    quotes: ClassVar = "{fit_error()}"
    want: int
    fit: int
    nodes: int
    refused: tuple[CauseCount, ...]
    first: str
    resource: str = ""
    request: int = 0
    more_nodes: int | None = 0
    elsewhere: Elsewhere | None = None
    context: ReasonContext | None = None

    @property
    def about(self) -> str:
        return "" if self.context is None else self.context.about

    @property
    def culprit(self) -> str:
        return self.first

    @property
    def amount(self) -> str:
        """The request for the scarcest resource, ``8 example.com/fpga``; empty if none is short."""
        if self.resource in {"", PODS}:
            return ""
        return f"{tell_amount(self.resource, self.request)} {self.resource}"

    def fit_error(self) -> str:
        """Return what kube-scheduler writes for the first pod that does not fit."""
        if not self.nodes:
            return "no nodes available to schedule pods."
        causes = sorted(self.refused, key=lambda refused: -refused.nodes)
        texts = sorted(refused.text() for refused in causes[:MAX_LISTED])
        if len(causes) > MAX_LISTED:
            texts.append(f"{len(causes) - MAX_LISTED} more causes")
        head = f"0/{self.nodes} nodes are available"
        return f"{head}: {', '.join(texts)}." if texts else f"{head}."

    @property
    def _is_one(self) -> bool:
        return self.want == 1

    @property
    def _there(self) -> Elsewhere:
        there = self.elsewhere
        return there if there and there.nodes else Elsewhere(self.nodes, self.refused)

    @property
    def _hanging(self) -> str:
        return tell_hanging(self._there.hanging) if self._there.hanging else ""

    @property
    def _is_too_much(self) -> bool:
        """Whether something is requested that no cause names."""
        short = {refused_nodes.resource for refused_nodes in self._there.refused}
        return bool(self.amount) and self.resource not in short

    @property
    def _is_too_large(self) -> bool:
        return bool(self.nodes) and self.more_nodes == 0

    @property
    def _nodes_lack(self) -> str:
        """What the nodes lack, other than those of the pods that fit."""
        there = self._there
        if not self.nodes:
            return "The cluster has no nodes"
        other = "" if there.nodes == self.nodes else "other "
        nodes = f"{other}node" if there.nodes == 1 else f"{other or 'all '}{there.nodes} nodes"
        causes = sorted(there.refused, key=lambda refused_nodes: -refused_nodes.nodes)
        amount = tell_amount(self.resource, self.request)
        amounts = self.resource, amount, there.users, there.holders
        if len(causes) == 1 and causes[0].nodes == there.nodes:
            subject = nodes if nodes.startswith("all") else f"the {nodes}"
            subject = (
                f"{subject[0].upper()}{subject[1:]}" if other or not self.fit else f"Then {subject}"
            )
            return f"{subject} {causes[0].clause(*amounts)}"
        clauses = [f"{cause.nodes} {cause.clause(*amounts)}" for cause in causes[:MAX_LISTED]]
        if len(causes) > MAX_LISTED:
            clauses.append(f"{len(causes) - MAX_LISTED} more causes")
        whole = f"the {other}{there.nodes} nodes" if other else plural(there.nodes, "node")
        return f"Of {whole}, {', '.join(clauses)}" if clauses else f"No node of {whole} is open"

    def advice(self, closed: Sequence[Closed] = ()) -> tuple[str, ...]:
        """Return what would help; ``closed`` are nodes with room that are closed to ``first``."""
        if self.context is not None:
            return self.context.advice()
        opening = [closed_nodes.advice() for closed_nodes in closed[: MAX_SENTENCES - 1]]
        # Nodes that are there and have room are nearer than new ones, if they are enough.
        is_enough = sum(len(closed_nodes.nodes) for closed_nodes in closed) >= (
            self.more_nodes or 0
        )
        sentences = [*opening, *self._advice()] if is_enough else [*self._advice(), *opening]
        return tuple(sentences[:MAX_SENTENCES])

    def _advice(self) -> Iterable[str]:
        hanging = () if self.elsewhere is None else self.elsewhere.hanging
        return [*(hanging_pod.advice() for hanging_pod in hanging[:1]), *self._advise_on_nodes()]

    def _advise_on_nodes(self) -> Iterable[str]:
        if not self.nodes:
            return ["Ask the administrators to add nodes: the cluster has none."]
        out = sum(count.nodes for count in self.refused if count.cause.keeps_out)
        if out:
            cause = next(count.cause for count in self.refused if count.cause.keeps_out)
            return [cause.advice.format(detail="", nodes=plural(out, "node"))]
        if self.more_nodes:
            nodes = plural(self.more_nodes, "node")
            wait = "Wait until as much is free on existing nodes"
            return [f"{wait}, or {ASK} add {nodes} as large as the largest one."]
        if self.resource == PODS:
            return [f"Wait until pods end, or {ASK} add nodes that allow more pods."]
        if self.amount and self.more_nodes == 0:
            node = f"No node that {self.first} may use has {self.amount} even if empty"
            return [f"{node}: request less, or {ASK} add a larger node."]
        return []


@dataclass(frozen=True, slots=True)
class NoSuitableNode(InsufficientNodes):
    """No node would take such a pod even if nothing else ran: each is too small or does not match.

    Room that becomes free is of no use to it, and no kind of nodes is known that may come for it.
    """

    code: ClassVar = "NoSuitableNode"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    meaning: ClassVar = (
        "a member asks for more than any node has that it may use, even if nothing else ran; or "
        "its own rules leave it no node"
    )
    way_out: ClassVar = (
        "ask for less per pod, relax the rules that say which nodes it may use, or ask the "
        "administrators for such nodes"
    )
