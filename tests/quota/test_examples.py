"""The worked examples of ``docs/quota-shares.md``, with our rules and with Koordinator's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.quota.scene import BOTH, GI, GPU, make_ledger, quota, settle, shares, wants
from tests.quota.trees import Level, share_level

from koord.core.quota.model import QuotaRules, QuotaSpec, Usage

NAMES = ["node1", "node2", "node3", "node4"]


def both(rules: QuotaRules, **changes: bool) -> QuotaRules:
    return replace(rules, **changes)


@pytest.mark.parametrize(
    ("last_weight", "last_floor", "expected"),
    [
        pytest.param(80, 15, [5, 20, 35, 40], id="E1-two-rounds"),
        pytest.param(0, 15, [5, 20, 40, 15], id="E2-weight-0"),
        pytest.param(0, 45, [5, 20, 30, 45], id="E3-guarantee"),
    ],
)
def test_one_level(last_weight: int, last_floor: int, expected: list[int]) -> None:
    level = Level([10, 15, 20, last_floor], [5, 20, 40, 70], [40, 60, 50, last_weight], [True] * 4)
    assert share_level(100, level) == expected


def test_e4_whole_units_are_not_lost() -> None:
    wanted = [100] * 10 + [0]
    level = Level([8] * 8 + [7] * 2 + [3], wanted, [1] * 11, [True] * 11)
    assert share_level(81, level) == [9, 9, 9, 8, 8, 8, 8, 8, 7, 7, 0]


@pytest.mark.parametrize("rules", BOTH)
@pytest.mark.parametrize(("asks", "expected"), [(0, (0, 90)), (30, (30, 70)), (60, (60, 50))])
def test_e5_an_idle_sibling_lends_and_takes_back(
    rules: QuotaRules, asks: int, expected: tuple[int, int]
) -> None:
    specs = [
        quota("test1", min=60, max=80, weight=1),
        quota("test2", min=50, max=100, weight=1),
    ]
    rules = both(rules, scales_min=False)
    solution = settle(specs, 100, {"test1": asks, "test2": 90}, rules)
    assert tuple(shares(solution).values()) == expected


@pytest.mark.parametrize("rules", BOTH)
def test_e5_a_deleted_sibling_frees_its_share(rules: QuotaRules) -> None:
    solution = settle([quota("test2", min=50, max=100)], 100, {"test2": 90}, rules)
    assert shares(solution) == {"test2": 90}


@pytest.mark.parametrize("rules", BOTH)
def test_e6_above_min_equal_weights_share_equally(rules: QuotaRules) -> None:
    largest = {"cpu": 96_000, "memory": 160 * GI}
    specs = [
        QuotaSpec("test1", min={"cpu": 50_000, "memory": 80 * GI}, max=largest),
        QuotaSpec("test2", min={"cpu": 40_000, "memory": 80 * GI}, max=largest),
    ]
    requests = [{"cpu": 120_000, "memory": 200 * GI}, {"cpu": 150_000, "memory": 210 * GI}]
    usage = {f"test{at}": Usage(request, request) for at, request in enumerate(requests, start=1)}
    solution = settle(specs, largest, usage, rules)
    assert solution.share("test1") == {"cpu": 53_000, "memory": 80 * GI}
    assert solution.share("test2") == {"cpu": 43_000, "memory": 80 * GI}


def family() -> list[QuotaSpec]:
    children = [quota(name, "p", min=100_000, max=1_000_000) for name in ("a", "b", "c")]
    return [quota("p", min=300_000, max=1_000_000, is_parent=True), *children]


@pytest.mark.parametrize("rules", BOTH)
@pytest.mark.parametrize(
    ("total", "b_wants", "scales", "expected"),
    [
        pytest.param(200_000, 200_000, True, (200_000, 66_667, 66_667, 66_666), id="scaled"),
        pytest.param(600_000, 200_000, True, (600_000, 200_000, 200_000, 200_000), id="grown"),
        pytest.param(200_000, 0, True, (200_000, 100_000, 0, 100_000), id="b-idle"),
        pytest.param(200_000, 200_000, False, (300_000, 100_000, 100_000, 100_000), id="off"),
    ],
)
def test_e7_guarantees_shrink_in_proportion(
    rules: QuotaRules, total: int, b_wants: int, scales, expected: tuple[int, ...]
) -> None:
    usage = {"a": 200_000, "b": b_wants, "c": 200_000}
    solution = settle(family(), total, usage, both(rules, scales_min=scales))
    assert tuple(shares(solution).values()) == expected


@pytest.mark.parametrize("rules", BOTH)
def test_e7_scaling_is_exact_in_bytes(rules: QuotaRules) -> None:
    specs = [
        quota("p", min=300 * GI, max=1000 * GI, key="memory"),
        *(quota(n, "p", min=100 * GI, max=1000 * GI, key="memory") for n in "abc"),
    ]
    usage = {name: wants(200 * GI, key="memory") for name in "abc"}
    solution = settle(specs, {"memory": 200 * GI}, usage, rules)
    assert solution.minimum("p") == {"memory": 200 * GI}
    assert [solution.minimum(name)["memory"] for name in "abc"] == [71_582_788_266] * 3
    assert list(shares(solution, "memory").values())[1:] == [
        71_582_788_267,
        71_582_788_267,
        71_582_788_266,
    ]


@pytest.mark.parametrize("rules", BOTH)
def test_e8_a_quota_that_does_not_lend_keeps_an_idle_guarantee(rules: QuotaRules) -> None:
    specs = [quota("test1", min=60, max=120), quota("test2", min=40, max=100, lends=False)]
    assert shares(settle(specs, 100, {"test1": 120}, rules)) == {"test1": 60, "test2": 40}


@pytest.mark.parametrize("rules", BOTH)
@pytest.mark.parametrize(
    ("lends", "asks", "expected"),
    [
        ("nnn", 0, (60, 20, 20)),
        ("nnn", 40, (60, 40, 20)),
        ("nnn", 60, (80, 60, 20)),
        ("yny", 0, (20, 20, 0)),
        ("yny", 40, (40, 40, 0)),
        ("yny", 60, (60, 60, 0)),
        ("ynn", 0, (40, 20, 20)),
        ("ynn", 40, (60, 40, 20)),
        ("ynn", 60, (80, 60, 20)),
    ],
)
def test_e8_lending_in_a_tree(
    rules: QuotaRules, lends: str, asks: int, expected: tuple[int, ...]
) -> None:
    root, first, second = (letter == "y" for letter in lends)
    specs = [
        quota("r", min=60, max=96, lends=root),
        quota("r-1", "r", min=20, max=96, lends=first),
        quota("r-2", "r", min=20, max=96, lends=second),
    ]
    assert tuple(shares(settle(specs, 100, {"r-1": asks}, rules)).values()) == expected


@pytest.mark.parametrize("rules", BOTH)
def test_e9_a_max_caps_the_request_at_its_level(rules: QuotaRules) -> None:
    def solve_with(limit: int) -> tuple[list[int], list[int]]:
        specs = [
            quota("test1", min=50, max=96),
            quota("test1-a", "test1", min=50, max=96),
            quota("a-123", "test1-a", min=50, max=limit),
        ]
        solution = settle(specs, 96, {"a-123": 96}, rules)
        requests = [solution.request(name)["cpu"] for name in ("a-123", "test1-a")]
        return list(shares(solution).values()), requests

    assert solve_with(96) == ([96, 96, 96], [96, 96])
    assert solve_with(64) == ([64, 64, 64], [96, 64])


@pytest.mark.parametrize("rules", BOTH)
@pytest.mark.parametrize("asks", [400, 800])
def test_e10_a_max_above_the_parents_does_not_help(rules: QuotaRules, asks: int) -> None:
    specs = [
        quota("test1", min=176, max=300),
        quota("test1-a", "test1", min=100, max=500),
    ]
    solution = settle(specs, 350, {"test1-a": asks}, rules)
    assert shares(solution) == {"test1": 300, "test1-a": 300}
    assert solution.request("test1") == {"cpu": min(asks, 500)}


@pytest.mark.parametrize("rules", BOTH)
def test_e11_capacity_below_max(rules: QuotaRules) -> None:
    specs = [quota("test1", max=600), quota("test1-a", "test1", max=500)]
    solution = settle(specs, 300, {"test1-a": 1050}, rules)
    assert shares(solution) == {"test1": 300, "test1-a": 300}
    assert solution.limited("test1-a") == {"cpu": 500}


@pytest.mark.parametrize("rules", BOTH)
@pytest.mark.parametrize(
    ("mins", "asks", "expected"), [((10, 0), 30, (30, 20)), ((40, 5), 115, (40, 10))]
)
def test_e12_equal_weights_unequal_guarantees(
    rules: QuotaRules, mins: tuple[int, int], asks: int, expected: tuple[int, int]
) -> None:
    specs = [quota("q1", min=mins[0], max=40), quota("q2", min=mins[1], max=40)]
    assert tuple(shares(settle(specs, 50, {"q1": asks, "q2": asks}, rules)).values()) == expected


@pytest.mark.parametrize("rules", BOTH)
def test_e13_a_quota_moves_with_its_usage_and_demand_to_another_parent(rules: QuotaRules) -> None:
    def solve_under(parent: str) -> tuple[dict[str, int], dict[str, int]]:
        specs = [
            quota("test1", min=100, max=200),
            quota("test1-a", "test1", max=200),
            quota("test2", max=200),
            quota("test2-a", "test2", max=200),
            quota("a-123", parent, max=200),
        ]
        usage = {"a-123": wants(60, 60), "test2-a": wants(20, 20)}
        ledger = make_ledger(specs, 96, usage, rules=rules)
        used = {name: ledger.account(name).used.get("cpu", 0) for name in ledger.names()}
        return shares(settle(specs, 96, usage, rules)), used

    entitled, used = solve_under("test1-a")
    assert entitled == used
    assert entitled == {"test1": 60, "test2": 20, "test1-a": 60, "test2-a": 20, "a-123": 60}
    entitled, used = solve_under("test2")
    assert entitled == used
    assert entitled == {"test1": 0, "test2": 80, "test1-a": 0, "a-123": 60, "test2-a": 20}


@pytest.mark.parametrize("rules", BOTH)
def test_e14_a_parent_may_have_pods_of_its_own(rules: QuotaRules) -> None:
    specs = [quota("1"), quota("11", "1"), quota("111", "11")]
    usage = {"11": wants(20, 20), "111": wants(15, 15)}
    ledger = make_ledger(specs, 100, usage, rules=rules)
    expected = {"1": 35, "11": 35, "111": 15}
    assert shares(settle(specs, 100, usage, rules)) == expected
    assert {name: ledger.account(name).used["cpu"] for name in expected} == expected
    assert shares(settle(specs[:2], 100, usage, rules))["11"] == 20


@pytest.mark.parametrize("rules", BOTH)
def test_e15_a_resource_comes_and_goes(rules: QuotaRules) -> None:
    with_key = [QuotaSpec("test1", max={"cpu": 100, "x-cpu": 100})]
    usage = {"test1": wants(80, key="x-cpu")}
    assert settle(with_key, {"cpu": 100}, usage, rules).share("test1")["x-cpu"] == 0
    assert settle(with_key, {"x-cpu": 100}, usage, rules).share("test1")["x-cpu"] == 80
    assert "x-cpu" not in settle([quota("test1")], {"x-cpu": 100}, usage, rules).share("test1")


@pytest.mark.parametrize("rules", BOTH)
def test_e16_guarantees_are_given_though_they_exceed_the_total(rules: QuotaRules) -> None:
    requests = {f"q{n}": n * 10 for n in range(1, 6)}
    specs = [quota(name, min=amount, max=100) for name, amount in requests.items()]
    assert shares(settle(specs, 50, requests, both(rules, scales_min=False))) == requests


@pytest.mark.parametrize("rules", BOTH)
def test_e17_fair_shares_may_be_too_small_for_every_unit(rules: QuotaRules) -> None:
    specs = [quota(name, max=16, key=GPU) for name in ("a", "b")]
    usage = {name: wants(16, key=GPU) for name in ("a", "b")}
    assert shares(settle(specs, {GPU: 16}, usage, rules), GPU) == {"a": 8, "b": 8}
