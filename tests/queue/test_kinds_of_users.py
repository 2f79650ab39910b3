"""Which kind of runs is forgotten next."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from koord.core.queue.kinds_of_users import KindsOfUsers, Worth

PUTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.booleans(), st.integers(0, 9))
)


@given(PUTS, st.integers(1, 12))
def test_whoever_has_most_loses_what_is_worth_least(
    puts: list[tuple[str, int, bool, int]], most: int
) -> None:
    """As by looking at all of them each time."""
    kinds, kept = KindsOfUsers(), dict[tuple[str, str], Worth]()
    for user, number, came_again, ended in puts:
        key = user, f"k{number}"
        kept[key] = (came_again, ended, key[1])
        kinds.put(*key, kept[key])
        if len(kept) > most:
            counts = Counter(each for each, _ in kept)
            greediest = min(counts, key=lambda each: (-counts[each], each))
            candidates = {each: kept[each] for each in kept if each[0] == greediest}
            lost = min(candidates, key=lambda each: (each == key, candidates[each]))
            del kept[lost]
            assert kinds.take_least(key) == lost
        assert len(kept) <= most


@given(PUTS, st.integers(0, 40))
def test_what_is_chosen_is_worth_most_and_of_users_alike(
    puts: list[tuple[str, int, bool, int]], most: int
) -> None:
    kinds, kept = KindsOfUsers(), dict[str, dict[str, Worth]]()
    for user, number, came_again, ended in puts:
        worth = kept.setdefault(user, {})[f"k{number}"] = (came_again, ended, f"k{number}")
        kinds.put(user, f"k{number}", worth)
    chosen = kinds.choose(most)
    assert sum(map(len, chosen.values())) == min(most, sum(map(len, kept.values())))
    for user, names in chosen.items():
        worths = sorted(kept[user].values())
        assert [kept[user][name] for name in names] == worths[len(worths) - len(names) :]
        if len(names) < len(worths):
            assert all(len(names) >= len(chosen[other]) - 1 for other in chosen)
