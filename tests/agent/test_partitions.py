"""Partition tables that are proposed for fabrics."""

import json
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from koord.agent.partitions import propose
from koord.agent.reading import SWITCH, ObservedDevice, PciPlace
from koord.api.device_partitions import parse_partitions


def make_gpus(count: int) -> list[ObservedDevice]:
    """Return GPUs, two on each switch and half of them on each socket."""
    places = [PciPlace(f"0000:{n:02x}:00.0", f"s{n // 2}", 2 * n // count) for n in range(count)]
    return [ObservedDevice("gpu", f"GPU-{n}", place, {}, minor=n) for n, place in enumerate(places)]


def linked(pairs: dict[tuple[int, int], int]) -> list[tuple[int, int]]:
    """Return links as both ends report them."""
    return [
        end for (a, b), count in pairs.items() for end in ((a, b), (b, a)) for _ in range(count)
    ]


def minors(table: dict, size: int) -> list[list[int]]:
    return [entry["minors"] for entry in table.get(str(size), [])]


def test_no_table_without_links() -> None:
    assert propose(make_gpus(8), []) == {}


def test_gpus_at_switches_are_halved_like_the_built_in_table() -> None:
    table = propose(make_gpus(8), [(n, SWITCH) for n in range(8) for _ in range(18)])
    assert minors(table, 1) == [[n] for n in range(8)]
    assert minors(table, 2) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert minors(table, 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert minors(table, 8) == [[*range(8)]]


def test_a_link_to_a_switch_that_is_down_changes_nothing() -> None:
    links = [(n, SWITCH) for n in range(8) for _ in range(18)]
    assert propose(make_gpus(8), links[1:]) == propose(make_gpus(8), links)


def test_halves_follow_the_places_and_not_the_minors() -> None:
    gpus = make_gpus(4)
    crossed = [
        ObservedDevice("gpu", gpu.id, gpus[at].place, {}, minor=gpu.minor)
        for gpu, at in zip(gpus, (0, 2, 1, 3), strict=True)
    ]
    table = propose(crossed, [(n, SWITCH) for n in range(4)])
    assert minors(table, 2) == [[0, 2], [1, 3]]


def test_bridges_make_pairs() -> None:
    table = propose(make_gpus(4), linked({(0, 1): 4, (2, 3): 4}))
    assert table.keys() == {"1", "2"}
    assert minors(table, 2) == [[0, 1], [2, 3]]


def test_sets_with_more_links_have_a_higher_score() -> None:
    """A cube mesh, as published for servers with eight V100: two quads, linked crosswise."""
    quad = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 1}
    other = {(a + 4, b + 4): count for (a, b), count in quad.items()}
    table = propose(make_gpus(8), linked(quad | other | {(n, n + 4): 1 for n in range(4)}))
    assert minors(table, 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert minors(table, 8) == [[*range(8)]]
    scores = {tuple(entry["minors"]): entry["allocationScore"] for entry in table["2"]}
    assert (scores[0, 3], scores[0, 1], scores[0, 4]) == (2, 1, 1)
    assert (0, 5) not in scores


@given(
    st.integers(2, 16),
    st.dictionaries(st.tuples(st.integers(0, 15), st.integers(-1, 15)), st.integers(1, 3)),
)
def test_every_proposal_can_be_read(count: int, ends: dict[tuple[int, int], int]) -> None:
    pairs = {pair: n for pair, n in ends.items() if max(pair) < count and pair[0] != pair[1]}
    links = [link for (a, b), n in pairs.items() for link in [(a, b)] * n]
    table = propose(make_gpus(count), links)
    read = parse_partitions({"scheduling.koordinator.sh/gpu-partitions": json.dumps(table)})
    assert read.problems == ()
    assert bool(read.partitions) == bool(table)
    for sets in table.values():
        listed = [tuple(zone_set["minors"]) for zone_set in sets]
        assert len(set(listed)) == len(listed)
    up = {frozenset(pair) for pair in pairs if SWITCH not in pair and pair[0] < pair[1]}
    at_switch = {a for a, b in pairs if b == SWITCH}
    up |= {frozenset(pair) for pair in combinations(at_switch, 2)}
    assert all(frozenset(pair) in up for pair in minors(table, 2))
