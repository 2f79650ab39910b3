"""The keys that only operators write are one list: it is made from the entries of the keys."""

from collections.abc import Iterator

import pytest
import yaml
from tests.manifests.scene import quoted, read_policy
from tools.policies import Result, fill_in, list_results, make_lists, make_policies

from koord.api.result_keys import BEGINNINGS, RESULTS
from koord.core.device.allocation import ALLOCATED, GPU_MINORS, GPU_UUIDS
from koord.core.device.vendors import (
    ASCEND_DUO,
    CAMBRICON,
    HAMI_CORE,
    HUAWEI,
    METAX,
    AllocatedGpu,
    HandOff,
    hand_off,
)
from koord.core.model.device_names import GPU_CORE, GPU_MEMORY
from koord.core.numa.model import STATUS
from koord.core.reservation.model import ALLOCATED as RESERVED
from koord.reference.entries import Entry, EntryKind

RESULT = Entry("a.b/c", EntryKind.KEY, "Pod annotation (result), JSON", "")
OF_PODS = "all result annotations of pods"


def test_policies_are_current() -> None:
    stale = [path.name for path, text in make_policies() if path.read_text("utf-8") != text]
    assert stale == [], "run make policies, then make chart"


def test_profiles_may_not_write_what_the_policies_refuse() -> None:
    lists = make_lists()
    assert {*lists[OF_PODS], *lists["result labels of pods"]} == RESULTS
    assert tuple(lists["beginnings of result annotations of pods"]) == BEGINNINGS


@pytest.mark.parametrize(
    ("where", "result"),
    [
        ("Pod annotation (result), JSON", Result("a.b/c", frozenset({"Pod"}), False, False)),
        ("Pod label (result)", Result("a.b/c", frozenset({"Pod"}), True, False)),
        (
            "Pod or Reservation annotation (result, also of device plugins), bytes",
            Result("a.b/c", frozenset({"Pod", "Reservation"}), False, True),
        ),
    ],
)
def test_an_entry_says_where_a_result_is_and_who_writes_it(where: str, result: Result) -> None:
    assert list(list_results([RESULT._replace(where=where)])) == [result]


@pytest.mark.parametrize("where", ["Annotation of such a pod (result)", "Resource (result)"])
def test_a_result_that_is_written_nowhere_in_particular_is_an_error(where: str) -> None:
    with pytest.raises(ValueError, match=r"a\.b/c"):
        list(list_results([RESULT._replace(where=where)]))


def test_keys_that_users_write_are_no_results() -> None:
    assert list(list_results([RESULT._replace(where="Pod annotation, JSON")])) == []


def test_a_new_result_gets_into_the_policies() -> None:
    lists = {**make_lists(), OF_PODS: ["a.b/new"]}
    (text,) = (one.read_text("utf-8") for one, _ in make_policies() if "limit" in one.name)
    policies = [one for one in yaml.safe_load_all(fill_in(text, lists)) if "Policy" in one["kind"]]
    found = [one["metadata"]["name"] for one in policies if "'a.b/new'" in str(one["spec"])]
    assert found == ["koord-limit-operators", "koord-limit-bindings"]


def keys_of_allocations(vendor: str, model: str) -> Iterator[str]:
    """All keys with which an allocation is recorded, of every domain, for a vendor's plugin."""
    yield from (ALLOCATED, GPU_MINORS, GPU_UUIDS, STATUS, RESERVED)
    gpu = AllocatedGpu(0, {GPU_CORE: 50, GPU_MEMORY: 1 << 30}, "id", "vir02")
    given = hand_off([gpu], vendor, model, HAMI_CORE, "n")
    assert isinstance(given, HandOff)
    yield from (*given.annotations, *given.labels, *given.timestamps)


@pytest.mark.parametrize(
    ("vendor", "model"),
    [("nvidia", ""), (HUAWEI, ""), (HUAWEI, ASCEND_DUO), (CAMBRICON, ""), (METAX, "")],
)
def test_whatever_records_an_allocation_is_protected(vendor: str, model: str) -> None:
    variables = {
        one["name"]: one["expression"] for one in read_policy("koord-protect")["variables"]
    }
    names = ("results", "shared", "beginnings", "resultLabels")
    protected = set[str]().union(*(quoted(variables[name]) for name in names))
    beginnings = tuple(quoted(variables["beginnings"]))
    written = {key for key in keys_of_allocations(vendor, model) if not key.startswith(beginnings)}
    assert written <= protected
