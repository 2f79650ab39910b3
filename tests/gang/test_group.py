"""Gang groups are the closure of mutual listings, of any size."""

from hypothesis import given
from hypothesis import strategies as st

from koord.core.gang.group import close_group
from koord.core.model.gangs import GangKey

NAMES = [f"ns/{name}" for name in "abcdef"]
names = st.sampled_from(NAMES)
lists = st.frozensets(names, max_size=6)


@given(st.dictionaries(names, st.none() | lists | st.just(frozenset(NAMES))), names)
def test_group_is_the_closure_of_mutual_listings(
    listings: dict[GangKey, frozenset[GangKey] | None], key: GangKey
) -> None:
    def listed(gang: GangKey) -> frozenset[GangKey]:
        return (listings.get(gang) or frozenset()) - {gang}

    gangs = {key}
    while (
        more := {other for gang in gangs for other in listed(gang) if gang in listed(other)} - gangs
    ):
        gangs |= more
    unknown = {gang for gang in NAMES if listings.get(gang) is None}
    group = close_group(key, listings.get)
    assert set(group.gangs) == gangs
    assert {lister: set(silent) for lister, silent in group.unreturned} == {
        gang: silent
        for gang in gangs
        if (silent := {o for o in listed(gang) - unknown if gang not in listed(o)})
    }
    assert {lister: set(absent) for lister, absent in group.absent} == {
        gang: absent for gang in gangs if (absent := listed(gang) & unknown)
    }


def test_large_group_reads_each_list_a_few_times() -> None:
    """Comparing each gang with each other would take seconds."""
    gangs = frozenset(f"ns/g{i}" for i in range(2000))
    asked = 0

    def listing(gang: GangKey) -> frozenset[GangKey] | None:
        nonlocal asked
        asked += 1
        return gangs if gang in gangs else None

    assert len(close_group("ns/g0", listing).gangs) == 2000
    assert asked <= 3 * 2000
