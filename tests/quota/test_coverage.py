"""Which namespaces quotas cover, and what the policy ``koord-enforce`` is told."""

import asyncio
import json

from hypothesis import given
from hypothesis import strategies as st
from tests.builders import GPU, make_quota
from tests.cluster import make_cluster
from tests.objects import upsert_quota

from koord.controllers.enforcement import Enforcement
from koord.core.engine.state import ClusterState
from koord.core.model.units import UNLIMITED_FROM
from koord.core.quota.coverage import find_covered
from koord.kube.quota_objects import MAX_BYTES, encode


def make_state(*quotas) -> ClusterState:
    state = make_cluster().state
    for quota in quotas:
        upsert_quota(state, quota)
    state.refresh()
    return state


def covered(*quotas) -> dict[str, frozenset[str]]:
    return find_covered(make_state(*quotas).quotas.catalog)


def test_listed_namespaces_and_the_one_of_its_name_are_covered() -> None:
    names_of = covered(
        make_quota("team", namespace="q", namespaces=("a", "b"), max={"cpu": 4000}),
        make_quota("own", namespace="own", max={"memory": 1}),
        make_quota("label", namespace="q", max={"cpu": 4000}),
    )
    assert names_of == {
        "a": frozenset({"cpu"}), "b": frozenset({"cpu"}), "own": frozenset({"memory"})
    }  # fmt: skip


def test_what_is_unlimited_is_not_limited_and_gpus_count_by_all_names() -> None:
    limits = {GPU: 8, "cpu": UNLIMITED_FROM}
    (names,) = covered(make_quota("t", namespaces=("a",), max=limits)).values()
    assert {GPU, "koordinator.sh/gpu-core", "kubernetes.io/gpu-core"} <= names
    assert "cpu" not in names


def test_limits_of_parents_count() -> None:
    names_of = covered(
        make_quota("org", is_parent=True, max={"memory": 4, "cpu": 8000}),
        make_quota(
            "t", parent="org", namespaces=("a",), max={"cpu": 4000, "memory": UNLIMITED_FROM}
        ),
    )
    assert names_of == {"a": frozenset({"cpu", "memory"})}


def test_a_quota_that_is_not_in_force_covers_its_namespaces() -> None:
    lost = make_quota("t", parent="nobody", namespaces=("a",), max={"cpu": 4000})
    assert covered(lost) == {"a": frozenset({"cpu"})}


@given(st.dictionaries(st.text("ab-", min_size=1), st.frozensets(st.text("xy/", min_size=1))))
def test_what_is_told_is_what_is_covered(names_of: dict[str, frozenset[str]]) -> None:
    encoded = encode(names_of)
    assert {
        name: frozenset(filter(None, text.split(","))) for name, text in encoded.items()
    } == names_of


def test_a_flood_of_namespaces_fits_into_the_config_map() -> None:
    flood = {f"namespace-{number:05}": frozenset({"x" * 200}) for number in range(9000)}
    encoded = encode(flood)
    assert 1000 < len(encoded) < len(flood)
    assert len(json.dumps(encoded)) <= MAX_BYTES * 1.1


class Policy:
    """A policy that is in force for some namespaces, None: that is not installed."""

    def __init__(self, enforced: frozenset[str] | None) -> None:
        self.enforced = enforced

    async def write(self, coverage: object) -> frozenset[str] | None:
        return self.enforced


def test_open_namespaces_are_named_until_the_policy_is_installed() -> None:
    quota = make_quota("t", namespaces=("a", "b"), max={"cpu": 4000})
    changes: list[int] = []
    policy = Policy(None)
    made = Enforcement(make_state(quota), policy, on_change=lambda: changes.append(1))
    assert made.describe(quota) is None, "not known yet"
    for enforced, left in ((None, ("a", "b")), (frozenset("a"), ("b",)), (frozenset("ab"), ())):
        policy.enforced = enforced
        for _ in range(2):
            asyncio.run(made.update(find_covered(made.state.quotas.catalog)))
        assert made.find_open() == left
        description = made.describe(quota)
        assert description is not None
        assert description.status == (not left)
        assert all(name in description.message for name in left)
    assert len(changes) == 3
    assert made.describe(make_quota("other", max={"cpu": 1})) is None
