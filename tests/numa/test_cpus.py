"""CPU pinning: whose CPUs are pinned, and which ones they are."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.core.engine.scoring import ScoringStrategy
from koord.core.numa.cpu_topology import (
    MAX_CPUS,
    CpuExclusive,
    CpuPlace,
    CpusInUse,
    CpuTopology,
    InvalidCpuset,
    RefCounts,
    format_cpuset,
    lowest_cpus,
    make_topology,
    parse_cpuset,
)
from koord.core.numa.cpus import (
    CONFLICT,
    INSUFFICIENT,
    NO_TOPOLOGY,
    NOT_WHOLE,
    NOT_WHOLE_CORES,
    CpuBind,
    CpuCause,
    CpuHints,
    CpuPool,
    CpuRequest,
    free_cpus,
    request_cpus,
    take_cpus,
    wants_pinned,
)

FULL, SPREAD = CpuBind.FULL_PCPUS, CpuBind.SPREAD_BY_PCPUS
PCPU, NUMA = CpuExclusive
MOST, LEAST = ScoringStrategy.MOST_ALLOCATED, ScoringStrategy.LEAST_ALLOCATED
Shape = tuple[int, int, int, int]


def machine(sockets: int, numa: int, cores: int, threads: int) -> CpuTopology:
    """Number CPUs so that the threads of a core are adjacent."""
    topology = make_topology(
        CpuPlace(cpu, core, socket=core // (cores * numa), numa=core // cores)
        for core in range(sockets * numa * cores)
        for cpu in range(core * threads, core * threads + threads)
    )
    assert topology is not None
    return topology


def cpus(text: str) -> int:
    parsed = parse_cpuset(text)
    assert isinstance(parsed, int)
    return parsed


def take(pool: CpuPool, in_use: CpusInUse, request: CpuRequest) -> str:
    taken = take_cpus(pool, in_use, request)
    return taken.describe() if isinstance(taken, CpuCause) else format_cpuset(taken)


# Topology and sets of CPUs


def test_topology_groups_cpus():
    topology = machine(2, 2, 2, 2)
    assert topology.cpus == 0xFFFF
    assert [format_cpuset(core) for core in topology.cores[:2]] == ["0-1", "2-3"]
    assert [format_cpuset(numa_node.cpus) for numa_node in topology.numa_nodes] == [
        "0-3",
        "4-7",
        "8-11",
        "12-15",
    ]
    assert [format_cpuset(numa_node.around) for numa_node in topology.numa_nodes[1:3]] == [
        "0-7",
        "8-15",
    ]
    assert topology.cpus_in(0b0110) == cpus("4-11")
    assert topology.numa_of(cpus("3-4")) == 0b0011
    sizes = topology.cpus_per_core, topology.cpus_per_numa, topology.cpus_per_socket
    assert sizes == (2, 4, 8)


def test_cores_are_numbered_per_socket():
    topology = make_topology(
        CpuPlace(cpu, core=0, socket=cpu // 2, numa=cpu // 2) for cpu in range(4)
    )
    assert topology is not None
    assert topology.cores == (0b0011, 0b1100)


@pytest.mark.parametrize(
    "places",
    [
        [],
        [CpuPlace(0, 0, 0, 0), CpuPlace(0, 1, 0, 0)],
        [CpuPlace(0, 0, 0, 0), CpuPlace(1, 0, 0, 1)],
        [CpuPlace(-1, 0, 0, 0)],
        [CpuPlace(MAX_CPUS, 0, 0, 0)],
        [CpuPlace(0, 0, 0, -1)],
    ],
)
def test_contradictory_topologies_are_rejected(places):
    assert make_topology(places) is None


@pytest.mark.parametrize("text", ["", "0", "0-3,32-35", "1,3,5-6,8191"])
def test_cpusets_are_written_as_they_are_read(text):
    assert format_cpuset(cpus(text)) == text


def test_overlapping_ranges_are_merged():
    assert format_cpuset(cpus("4-6,0-1,2,5-9")) == "0-2,4-9"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("0-3,x", "x"),
        ("3-1", "3-1"),
        ("0,,1", ""),
        ("0-8192", "0-8192"),
        ("-1", "-1"),
        ("1-2-3", "1-2-3"),
        (" 1", " 1"),
        ("٣", "٣"),
        ("9" * 5000, "9" * 5000),
        ("1," * 40000, "1," * 40000),
    ],
)
def test_wrong_cpusets_are_rejected_with_the_wrong_part(text, part):
    parsed = parse_cpuset(text)
    assert parsed == InvalidCpuset(part)
    assert len(parsed.describe()) < 400


CPUSETS = st.integers(0, (1 << 40) - 1)


@given(CPUSETS)
def test_cpusets_survive_writing(cpu_set):
    assert cpus(format_cpuset(cpu_set)) == cpu_set


@given(CPUSETS, st.integers(0, 41))
def test_lowest_cpus_are_a_prefix(cpu_set, count):
    lowest = lowest_cpus(cpu_set, count)
    assert lowest & cpu_set == lowest
    assert lowest.bit_count() == min(count, cpu_set.bit_count())
    assert lowest < cpu_set & -(cpu_set & ~lowest) if cpu_set & ~lowest else lowest == cpu_set


@given(st.lists(st.tuples(CPUSETS, st.sampled_from([None, *CpuExclusive])), max_size=5), st.data())
def test_cpus_are_given_back_exactly(held, data):
    in_use = CpusInUse()
    for cpu_set, exclusive in held:
        in_use = in_use.hold(cpu_set, exclusive)
    for count in range(1, 6):
        expected = sum(
            1 << cpu for cpu in range(40) if sum(cpu_set >> cpu & 1 for cpu_set, _ in held) >= count
        )
        assert in_use.counts.at_least(count) == expected
    for cpu_set, exclusive in data.draw(st.permutations(held)):
        in_use = in_use.give_back(cpu_set, exclusive)
    assert in_use == CpusInUse()


# Whose CPUs are pinned


def test_pinned_are_production_pods_of_two_classes():
    assert [qos for qos in ("LSE", "LSR", "LS", "BE", "") if wants_pinned(qos, is_prod=True)] == [
        "LSE",
        "LSR",
    ]
    assert not wants_pinned("LSR", is_prod=False)


WISH = CpuHints(4000, is_pinned=True)


@pytest.mark.parametrize(
    ("wish", "node", "expected"),
    [
        (CpuHints(4000), None, None),
        (CpuHints(0, is_pinned=True), None, None),
        (CpuHints(4000), SPREAD, CpuRequest(4, SPREAD, is_required=True)),
        (CpuHints(0), SPREAD, None),
        (CpuHints(4000, required=FULL), SPREAD, CpuRequest(4, SPREAD, is_required=True)),
        (WISH, None, CpuRequest(4)),
        (CpuHints(4000, True, None, SPREAD, NUMA), None, CpuRequest(4, SPREAD, exclusive=NUMA)),
        (CpuHints(3000, True, None, FULL), None, CpuRequest(3)),
        (CpuHints(4000, True, SPREAD, FULL), None, CpuRequest(4, SPREAD, is_required=True)),
        (CpuHints(4000, True, CpuBind.DEFAULT), None, CpuRequest(4, FULL, is_required=True)),
        (CpuHints(4000, True, None, SPREAD), FULL, CpuRequest(4, FULL, is_required=True)),
        (CpuHints(3500, True), None, CpuCause(NOT_WHOLE, 3500)),
        (CpuHints(3500), FULL, CpuCause(NOT_WHOLE, 3500)),
        (CpuHints(4000, True, SPREAD), FULL, CpuCause(CONFLICT, 4000)),
        (CpuHints(3000, True, FULL), None, CpuCause(NOT_WHOLE_CORES, 3000, 2)),
        (CpuHints(3000), FULL, CpuCause(NOT_WHOLE_CORES, 3000, 2)),
    ],
)
def test_request_for_pinned_cpus(wish, node, expected):
    assert request_cpus(wish, machine(1, 1, 4, 2), node) == expected


def test_pinning_needs_a_topology():
    refusal = request_cpus(WISH, None)
    assert refusal == CpuCause(NO_TOPOLOGY, 4000)
    assert not refusal.is_resolvable
    assert request_cpus(CpuHints(4000), None) is None


def test_refusals_have_the_messages_of_koordinator():
    assert [CpuCause(cause).describe() for cause in (NOT_WHOLE, NO_TOPOLOGY, CONFLICT)] == [
        "the requested CPUs must be integer",
        "node(s) invalid CPU Topology",
        "node(s) cpu bind policy conflicts with pod's required cpu bind policy",
    ]
    assert CpuCause(NOT_WHOLE_CORES).describe() == (
        "node(s) requested cpus not multiple cpus per core"
    )


# Which CPUs


@pytest.mark.parametrize(
    ("shape", "taken", "request_", "strategy", "expected"),
    [
        ((1, 1, 4, 2), "0-1", CpuRequest(2), MOST, "2-3"),
        ((2, 2, 4, 2), "0-5,16-23", CpuRequest(6), MOST, "24-29"),
        ((2, 2, 4, 2), "0-5,16-23", CpuRequest(6), LEAST, "8-13"),
        ((2, 2, 4, 2), "0-5,16-23", CpuRequest(12), LEAST, "6-15,24-25"),
        ((2, 2, 2, 2), "0,2,4,8,12", CpuRequest(4), MOST, "10-11,14-15"),
        ((2, 1, 4, 2), "0,2", CpuRequest(4, SPREAD), MOST, "1,3-4,6"),
        ((2, 1, 4, 2), "0-3", CpuRequest(4, SPREAD), MOST, "8,10,12,14"),
        ((2, 1, 4, 2), "0,2", CpuRequest(6, SPREAD), LEAST, "8-12,14"),
        ((2, 1, 4, 2), "0,2", CpuRequest(4, SPREAD, exclusive=PCPU), MOST, "8,10,12,14"),
        ((2, 1, 4, 2), "", CpuRequest(10, SPREAD, exclusive=PCPU), MOST, "0-4,6,8,10,12,14"),
        ((2, 2, 4, 2), "0-1", CpuRequest(10, exclusive=NUMA), MOST, "16-25"),
        ((2, 1, 4, 1), "0", CpuRequest(3, SPREAD), MOST, "1-3"),
        ((2, 1, 4, 2), "0,2,4,6,8,10,12,14", CpuRequest(3), MOST, "1,3,5"),
    ],
)
def test_worked_examples(shape: Shape, taken, request_, strategy, expected):
    topology = machine(*shape)
    in_use = CpusInUse().hold(cpus(taken), request_.exclusive)
    assert take(CpuPool(topology, topology.cpus, strategy), in_use, request_) == expected


def test_pods_with_another_exclusive_policy_are_not_avoided():
    topology = machine(2, 1, 4, 2)
    in_use = CpusInUse().hold(cpus("0,2"), NUMA)
    pool = CpuPool(topology, topology.cpus, MOST)
    assert take(pool, in_use, CpuRequest(4, SPREAD, exclusive=NUMA)) == "8,10,12,14"
    assert take(pool, in_use, CpuRequest(4, SPREAD, exclusive=PCPU)) == "1,3-4,6"
    assert take(pool, in_use, CpuRequest(4)) == "4-7"


def test_avoided_cpus_are_used_if_nothing_else_is_left():
    topology = machine(1, 2, 2, 2)
    in_use = CpusInUse().hold(cpus("0"), PCPU).hold(cpus("4"), NUMA)
    pool = CpuPool(topology, topology.cpus)
    assert take(pool, in_use, CpuRequest(6, SPREAD, exclusive=PCPU)) == "1-3,5-7"
    assert take(pool, in_use, CpuRequest(2, exclusive=NUMA)) == "2-3"
    assert take(pool, in_use, CpuRequest(5, exclusive=NUMA)) == "1-3,6-7"


@pytest.mark.parametrize("bind", [FULL, SPREAD])
def test_shared_cpus_are_taken_when_no_unused_ones_are_left(bind):
    topology = machine(1, 1, 4, 2)
    pool, in_use, rounds = CpuPool(topology, topology.cpus, max_refs=2), CpusInUse(), []
    for _ in range(4):
        taken = take_cpus(pool, in_use, CpuRequest(4, bind))
        assert isinstance(taken, int)
        rounds.append(format_cpuset(taken))
        in_use = in_use.hold(taken)
    halves = ["0-3", "4-7"] if bind is FULL else ["0,2,4,6", "1,3,5,7"]
    assert rounds == halves * 2
    assert take(pool, in_use, CpuRequest(1, bind)) == "not enough cpus available to satisfy request"


def test_required_policy_limits_the_free_cpus():
    topology = machine(1, 1, 4, 2)
    pool, in_use = CpuPool(topology, cpus("1-7")), CpusInUse().hold(cpus("2"))

    def free(bind: CpuBind, **options: bool) -> str:
        return format_cpuset(free_cpus(pool, in_use, CpuRequest(1, bind, **options)))

    assert free(FULL) == free(SPREAD) == "1,3-7"
    assert free(FULL, is_required=True) == "4-7"
    assert free(SPREAD, is_required=True) == "1,3-4,6"
    assert free(CpuBind.CONSTRAINED_BURST, is_required=True) == "1,3-7"


def test_cpus_are_taken_within_the_given_ones():
    topology = machine(2, 1, 4, 2)
    pool = CpuPool(topology, topology.cpus)
    assert take_cpus(pool, CpusInUse(), CpuRequest(4), topology.cpus_in(0b10)) == cpus("8-11")
    refusal = take_cpus(pool, CpusInUse(), CpuRequest(10), topology.cpus_in(0b10))
    assert refusal == CpuCause(INSUFFICIENT, 10000, 8)
    assert refusal.is_resolvable


def test_cores_with_offline_cpus_are_not_whole():
    topology = make_topology(CpuPlace(cpu, cpu // 2, 0, 0) for cpu in range(1, 8))
    assert topology is not None
    assert take(CpuPool(topology, topology.cpus), CpusInUse(), CpuRequest(2)) == "2-3"


# In general

SHAPES = st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
BINDS = st.sampled_from([FULL, SPREAD, CpuBind.CONSTRAINED_BURST])


@st.composite
def pools(draw):
    topology = machine(*draw(SHAPES))
    cpu_sets = st.integers(0, topology.cpus)
    pool = CpuPool(
        topology,
        draw(st.one_of(st.just(topology.cpus), cpu_sets)),
        draw(st.sampled_from([MOST, LEAST])),
        draw(st.integers(1, 3)),
    )
    in_use = CpusInUse()
    for taken, exclusive in draw(
        st.lists(st.tuples(cpu_sets, st.sampled_from([None, *CpuExclusive])), max_size=4)
    ):
        in_use = in_use.hold(taken & draw(cpu_sets), exclusive)
    return pool, in_use


@st.composite
def requests(draw):
    return CpuRequest(
        draw(st.integers(0, 20)),
        draw(BINDS),
        draw(st.booleans()),
        draw(st.sampled_from([None, *CpuExclusive])),
    )


@given(pools(), requests(), CPUSETS)
def test_exactly_the_requested_number_of_free_cpus_is_taken(node, request_, held):
    pool, in_use = replace(node[0], preferred=held), node[1]
    taken = take_cpus(pool, in_use, request_)
    free = free_cpus(pool, in_use, request_)
    if isinstance(taken, CpuCause):
        assert request_.count > free.bit_count()
        return
    assert taken.bit_count() == request_.count
    assert taken & free == taken
    if request_.step(pool.topology) == 1:
        first = free & held
        assert (taken & first).bit_count() == min(request_.count, first.bit_count())
    assert not taken & ~pool.usable
    after = in_use.hold(taken, request_.exclusive)
    assert not after.counts.at_least(pool.max_refs + 1) & taken
    assert after.give_back(taken, request_.exclusive) == in_use


@given(pools(), requests(), CPUSETS)
def test_required_policies_are_kept(node, request_, held):
    pool, in_use = replace(node[0], preferred=held), node[1]
    if not request_.is_required or request_.count % request_.step(pool.topology):
        return
    taken = take_cpus(pool, in_use, request_)
    if isinstance(taken, CpuCause):
        return
    parts = {(taken & core).bit_count() for core in pool.topology.cores} - {0}
    if request_.bind is FULL:
        assert parts <= {pool.topology.cpus_per_core}
    elif request_.bind is SPREAD:
        assert parts <= {1}


def whole(pool: CpuPool, cpus: int) -> list[int]:
    return [core for core in pool.topology.cores if core & cpus == core]


@given(pools(), requests())
def test_full_pcpus_takes_as_many_whole_cores_as_possible(node, request_):
    pool, in_use = node
    size = pool.topology.cpus_per_core
    taken = take_cpus(pool, in_use, request_)
    if request_.bind is not FULL or isinstance(taken, CpuCause):
        return
    cores = whole(pool, free_cpus(pool, in_use, request_))
    assert len(whole(pool, taken)) == min(request_.count // size, len(cores))


@given(pools(), requests())
def test_cpus_are_as_close_together_as_possible(node, request_):
    """In one NUMA node, or in one socket, if any has enough: seen by trying each of them."""
    pool, in_use = node
    taken = take_cpus(pool, in_use, request_)
    if isinstance(taken, CpuCause) or not request_.count:
        return
    free = free_cpus(pool, in_use, request_)
    if request_.bind is FULL:
        free = sum(whole(pool, free))
    for groups in pool.topology.numa_nodes, pool.topology.sockets:
        enough = [group for group in groups if (free & group.cpus).bit_count() >= request_.count]
        if enough:
            assert any(taken & group.cpus == taken for group in enough)
            return


@given(pools(), requests())
def test_the_fullest_or_the_emptiest_numa_node_is_taken(node, request_):
    pool, in_use = node
    request_ = CpuRequest(request_.count, FULL, request_.is_required)
    taken = take_cpus(pool, in_use, request_)
    if isinstance(taken, CpuCause) or not request_.count:
        return
    rooms = {
        numa_node.cpus: (
            sum(whole(pool, free_cpus(pool, in_use, request_))) & numa_node.cpus
        ).bit_count()
        for numa_node in pool.topology.numa_nodes
    }
    enough = [room for room in rooms.values() if room >= request_.count]
    if enough:
        [taken_room] = [room for group, room in rooms.items() if group & taken]
        assert taken_room == (min if pool.strategy is MOST else max)(enough)


@given(pools(), requests())
def test_others_with_the_same_policy_are_avoided_if_a_numa_node_without_them_has_room(
    node, request_
):
    pool, in_use = node
    if request_.exclusive is not NUMA:
        return
    taken = take_cpus(pool, in_use, request_)
    if isinstance(taken, CpuCause):
        return
    held = in_use.by_numa.at_least(1)
    free = free_cpus(pool, in_use, request_)
    alone = [
        numa_node.cpus & free for numa_node in pool.topology.numa_nodes if not numa_node.cpus & held
    ]
    if request_.bind is FULL and any(
        sum(whole(pool, cpus)).bit_count() >= request_.count for cpus in alone
    ):
        assert not pool.topology.numa_of(taken) & pool.topology.numa_of(held)


@given(pools(), st.integers(1, 6))
def test_spreading_uses_as_many_cores_as_one_place_allows(node, count):
    """Compared with every choice of CPUs, where a NUMA node has a core for each CPU."""
    pool, in_use = node
    request_ = CpuRequest(count, SPREAD)
    taken = take_cpus(pool, in_use, request_)
    if isinstance(taken, CpuCause):
        return
    free = free_cpus(pool, in_use, request_)

    def cores_of(cpu_sets: int) -> int:
        return sum(1 for core in pool.topology.cores if core & cpu_sets)

    rooms = [numa_node.cpus & free for numa_node in pool.topology.numa_nodes]
    if pool.topology.cpus_per_core > 1 and any(cores_of(room) >= count for room in rooms):
        [inside] = [room for room in rooms if room & taken]
        single = [1 << cpu for cpu in range(inside.bit_length()) if inside >> cpu & 1]
        best = max(cores_of(sum(cpu_sets)) for cpu_sets in combinations(single, count))
        assert cores_of(taken) == best == count


def test_counts_of_unused_cpus_stay_zero():
    assert RefCounts().remove(0b11) == RefCounts()
    assert RefCounts().add(0b01).remove(0b11) == RefCounts()
