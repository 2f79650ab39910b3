"""One gathering in the making: a tree, a goal, and where its members are so far.

Splits pods of one shape over the tree and puts them on the snapshot. Which pods belong together,
and what to say if they do not fit, is not known here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from koord.core.framework.arrays import Mask
from koord.core.framework.cycle import Cycle
from koord.core.plan import Assignment, Gathered
from koord.core.pods import Pod, PodShape
from koord.core.topology.capacity import SplitRequest
from koord.core.topology.goal import Goal
from koord.core.topology.insertion import find_slot
from koord.core.topology.rank import rank_member
from koord.core.topology.solve import NoSplit, Split, count_used, explain_offers, split
from koord.core.topology.strategy.coupled_pods import fill_domain
from koord.core.topology.strategy.observed_topology import describe_rows
from koord.core.topology.strategy.topology_view import TopologyView
from koord.core.topology.tree import Ints, TopologyTree
from koord.core.topology_constraint import PlacedMember

MOST_MATCHED: Final = 64
"""Members that join others are matched with places one by one if they are not more."""


class DomainPlacer:
    """A tree with the members of one gathering on it.

    ``outside`` holds nodes of members that have no place in the tree.
    """

    def __init__(
        self,
        snapshot: Cycle,
        view: TopologyView,
        tree: TopologyTree,
        goal: Goal,
        siblings: Iterable[PlacedMember],
    ) -> None:
        self.snapshot = snapshot
        self._view = view
        self.tree = tree
        self.goal = goal
        self.members: list[PlacedMember] = []
        self.outside: list[str] = []
        self.within: Mask | None = None
        """The nodes to keep to, if not all may be used."""
        self.is_certain = True
        """Whether everything was placed by a method that finds the best."""
        self.fixed: Ints = np.zeros(len(tree.rows), dtype=np.int64)
        for sibling in siblings:
            self.add(sibling)

    def add(self, member: PlacedMember) -> None:
        """Count a member where it is."""
        row = self.snapshot.table.row_of.get(member.node)
        if row is None:
            return
        if self.tree.path_of_row(row) is None:
            self.outside.append(member.node)
            return
        self.members.append(member)
        self.fixed[np.searchsorted(self.tree.rows, row)] += 1

    def forget(self, count: int) -> None:
        """Take back the last members that were added."""
        for member in self.members[len(self.members) - count :]:
            row = self.snapshot.table.row_of[member.node]
            self.fixed[np.searchsorted(self.tree.rows, row)] -= 1
        del self.members[len(self.members) - count :]

    def restore(self, assignment: Assignment) -> None:
        """Put a member where it was before it was taken back."""
        pod = assignment.pod
        self.snapshot.place(self.shape_of(pod), self.snapshot.table.row_of[assignment.node])
        self.add(PlacedMember(assignment.node, pod.index, pod.name))

    def offers(self, shape: PodShape, within: Mask | None = None) -> Ints:
        """Return how many pods of a shape each node of the tree takes."""
        return self._inside(self.snapshot.room(shape), within)

    def reach(self, shape: PodShape, within: Mask | None = None) -> Ints:
        """Return how many it may take at most, however others are placed."""
        return self._inside(self.snapshot.possible_room(shape), within)

    def _inside(self, per_row: Ints, within: Mask | None) -> Ints:
        found = per_row[self.tree.rows]
        for mask in (self.within, within):
            if mask is not None:
                found = np.where(mask, found, 0)
        return found

    def ask(self, pods: Sequence[Pod], least: int, offers: Ints, goal: Goal) -> SplitRequest:
        """Put the question of how to place pods of one shape."""
        return SplitRequest(
            goal=goal,
            offers=offers,
            least=least,
            most=len(pods),
            fixed=self.fixed if self.members else None,
            near=self._near(pods[0]),
        )

    def place(
        self,
        pods: Sequence[Pod],
        least: int,
        *,
        goal: Goal | None = None,
        within: Mask | None = None,
    ) -> list[Assignment] | NoSplit:
        """Place at least ``least`` pods of one shape, the first by index, or say what is offered.

        ``goal`` stands in for the one of the site, and ``within`` are the nodes to keep to.
        """
        goal = goal or self.goal
        shape = self.shape_of(pods[0])
        ask = self.ask(pods, least, self.offers(shape, within), goal)
        if self.snapshot.is_reactive(shape):
            return self._huddle(shape, pods, ask, self.reach(shape, within))
        found = self._find_slot(pods, ask) or split(self.tree, ask)
        if isinstance(found, NoSplit):
            return found
        return self._put(shape, self._order(pods, found), found)

    def shape_of(self, pod: Pod) -> PodShape:
        """Return the shape under which the snapshot knows a pod."""
        return self.snapshot.shape_of(pod)

    def _huddle(
        self, shape: PodShape, pods: Sequence[Pod], ask: SplitRequest, reach: Ints
    ) -> list[Assignment] | NoSplit:
        """Place pods that matter to each other; what is offered is what the network would take."""
        self.is_certain = False
        shares = fill_domain(self.snapshot, self.tree, shape, replace(ask, offers=reach))
        if not shares:
            return explain_offers(self.tree, ask)
        taken = ((share.row, share.count) for share in shares)
        return self._note(sort_members(pods), sorted(taken, key=self._tree_order))

    def _tree_order(self, share: tuple[int, int]) -> tuple[str, ...]:
        return self._path(share[0])

    def _find_slot(self, pods: Sequence[Pod], ask: SplitRequest) -> Split | None:
        """Return the slot of a single member between the members next to it."""
        if len(pods) > 1 or ask.fixed is None or pods[0].index < 0 or max(ask.goal.units) > 1:
            return None
        neighbours = self._neighbours(pods[0].index)
        return find_slot(self.tree, ask, neighbours) if neighbours else None

    def _neighbours(self, index: int) -> list[int]:
        """Return the rows of the members right before and right after an index, if it is one."""
        if index < 0:
            return []
        before = [one for one in self.members if 0 <= one.index <= index]
        after = [one for one in self.members if one.index > index]
        nearest = []
        if before:
            nearest.append(max(before, key=lambda one: (one.index, one.node)))
        if after:
            nearest.append(min(after, key=lambda one: (one.index, one.node)))
        return [self.snapshot.table.row_of[one.node] for one in nearest]

    def _put(self, shape: PodShape, pods: Sequence[Pod], found: Split) -> list[Assignment]:
        for row, count in found.shares:
            self.snapshot.place(shape, row, count)
        return self._note(pods, found.shares)

    def _note(self, pods: Sequence[Pod], shares: Sequence[tuple[int, int]]) -> list[Assignment]:
        """Give pods their nodes, in order, and count them where they are."""
        assignments: list[Assignment] = []
        for row, count in shares:
            node = self.snapshot.table.node_at(row).name
            taken = pods[len(assignments) : len(assignments) + count]
            assignments += [Assignment(pod, node) for pod in taken]
            self.members += [PlacedMember(node, pod.index, pod.name) for pod in taken]
        rows, counts = np.array(shares, dtype=np.int64).T
        self.fixed[np.searchsorted(self.tree.rows, rows)] += counts
        return assignments

    def _order(self, pods: Sequence[Pod], found: Split) -> list[Pod]:
        """Return pods in the order in which they take the shares: neighbours stay together.

        Without members that have their place, that is the order of their ranks.
        """
        ordered = sort_members(pods)
        ranked = [one for one in self.members if one.index >= 0]
        if not ranked or len(found.shares) == 1 or len(pods) > MOST_MATCHED:
            return ordered
        left = dict(found.shares)
        pairs = sorted(
            (self._breaks(row, self._neighbours(pod.index)), rank, at, row)
            for rank, pod in enumerate(ordered)
            for at, row in enumerate(left)
        )
        chosen: dict[int, tuple[int, int]] = {}
        for _, rank, at, row in pairs:
            if rank not in chosen and left[row]:
                chosen[rank] = (at, rank)
                left[row] -= 1
        return [ordered[rank] for _, rank in sorted(chosen.values())]

    def _path(self, row: int) -> tuple[str, ...]:
        return (*(self.tree.path_of_row(row) or ()), self.tree.name_of_row(row))

    def _breaks(self, row: int, neighbours: Sequence[int]) -> tuple[int, ...]:
        """Count, per layer from the top, the neighbours that are in another domain."""
        path, near = self._path(row), [self._path(other) for other in neighbours]
        return tuple(
            sum(other[: at + 1] != path[: at + 1] for other in near) for at in range(len(path))
        )

    def _near(self, pod: Pod) -> Ints | None:
        attracting = self._view.attracting(pod.attraction)
        if not attracting:
            return None
        near = np.zeros(len(self.tree.rows), dtype=np.int64)
        for node, count in attracting.items():
            row = self.snapshot.table.row_of.get(node)
            if row is not None and self.tree.path_of_row(row) is not None:
                near[np.searchsorted(self.tree.rows, row)] = count
        return near

    def used(self) -> tuple[int, ...]:
        """Return how many domains of each layer, from the root, hold a member."""
        return count_used(self.tree, np.flatnonzero(self.fixed))

    def used_with(self, found: Split) -> tuple[int, ...]:
        """Return how many there would be with members split in that way."""
        rows = np.array([row for row, _ in found.shares], dtype=np.int64)
        positions = np.searchsorted(self.tree.rows, rows)
        return count_used(self.tree, np.union1d(positions, np.flatnonzero(self.fixed)))

    def describe(self, topology: str, gap: tuple[str, int] | None) -> Gathered | None:
        """Say where the members are; None if none is in the tree."""
        if not self.members:
            return None
        rows = self.tree.rows[np.flatnonzero(self.fixed)].tolist()
        return describe_rows(self.tree, topology, rows, gap)


def sort_members(pods: Sequence[Pod]) -> list[Pod]:
    """Return members in the order in which they take neighbouring places."""
    return sorted(pods, key=lambda pod: rank_member(pod.index, pod.name, pod.uid))
