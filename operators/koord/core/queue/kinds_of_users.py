"""Which of many kinds of runs is forgotten next, so that each user has his part of what is kept.

Whoever has most kinds loses one, of equal users the first by name: the oldest that ran once, then
the oldest. Says so in about the logarithm of what is kept. Knows no run times.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

Worth: TypeAlias = tuple[bool, int, str]
"""Whether a kind came again, when its last run ended, and its name: the least is forgotten."""
_SPARE: Final = 16
"""Entries of a heap that may be out of date, beside as many as are not."""


class KindsOfUsers:
    """The kinds of each user, by what they are worth."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Worth]] = {}
        self._least: dict[str, list[Worth]] = {}
        """User -> a heap of what his kinds are worth, or were."""
        self._most: list[tuple[int, str]] = []
        """A heap of users by how many kinds they have, or had, negative."""

    def put(self, user: str, kind: str, worth: Worth) -> None:
        """Add a kind, or change what it is worth."""
        kinds = self._kinds.setdefault(user, {})
        is_new = kind not in kinds
        kinds[kind] = worth
        heap = self._least.setdefault(user, [])
        heappush(heap, worth)
        if len(heap) > 2 * len(kinds) + _SPARE:
            heap[:] = kinds.values()
            heapify(heap)
        if is_new:
            self._note_count(user)

    def take_least(self, newest: tuple[str, str]) -> tuple[str, str]:
        """Remove and return the user and kind to forget; ``newest`` only if he has no other."""
        user = self._greediest()
        kinds, heap = self._kinds[user], self._least[user]
        spared: list[Worth] = []
        while True:
            worth = heappop(heap)
            kind = worth[2]
            if kinds.get(kind) != worth:
                continue
            if (user, kind) != newest or len(kinds) == 1:
                break
            spared.append(worth)
        for each in spared:
            heappush(heap, each)
        del kinds[kind]
        if not kinds:
            del self._kinds[user], self._least[user]
        self._note_count(user)
        return user, kind

    def choose(self, most: int) -> Mapping[str, tuple[str, ...]]:
        """Return the kinds of each user that are worth most, ``most`` in all, in parts alike."""
        left, chosen = most, {}
        users = sorted(self._kinds, key=lambda user: (len(self._kinds[user]), user))
        for at, user in enumerate(users):
            kinds = sorted(self._kinds[user].values())
            share = min(len(kinds), left // (len(users) - at))
            left -= share
            chosen[user] = tuple(kind for *_, kind in kinds[len(kinds) - share :])
        return chosen

    def _note_count(self, user: str) -> None:
        heappush(self._most, (-len(self._kinds.get(user, ())), user))
        if len(self._most) > 2 * len(self._kinds) + _SPARE:
            self._most = [(-len(kinds), each) for each, kinds in self._kinds.items()]
            heapify(self._most)

    def _greediest(self) -> str:
        while True:
            count, user = self._most[0]
            if user in self._kinds and len(self._kinds[user]) == -count:
                return user
            heappop(self._most)
