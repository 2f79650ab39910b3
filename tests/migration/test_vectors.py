"""Worked examples of Koordinator's numbers: how many pods of a workload may be away."""

import json
from pathlib import Path
from typing import Any

import pytest

from koord.core.migration.eligibility import find_ineligible
from koord.core.migration.model import MigrationOptions, MovedPod
from koord.core.migration.workload import (
    Workload,
    count_away,
    has_expected_replicas,
    limit_of,
    limits_of,
    replicas_of_job,
)
from koord.core.model.pods import OwnerReference

CASES = json.loads((Path(__file__).parent / "vectors.json").read_text())["cases"]
OWNED = MovedPod(
    "ml", "web-1", "u1", owners=(OwnerReference("web", "ReplicaSet", "apps/v1", "r", True),),
    is_ours=True,
)  # fmt: skip


def _max_unavailable(given: Any) -> dict[str, Any]:
    written = str(given["intOrPercent"])
    return {"value": limit_of(written, given["replicas"], compat=True)}


def _eviction_cost(given: Any) -> dict[str, Any]:
    pod = MovedPod(**{**_fields(OWNED), "eviction_cost": int(given["annotation"])})
    return {"allowed": find_ineligible(pod, MigrationOptions()) is None}


def _workload_unavailable(given: Any) -> dict[str, Any]:
    unready = {f"a{at}" for at in range(given["unavailablePods"])}
    migrating = {f"m{at}" for at in range(given["migratingPods"])} if given["sameWorkload"] else ()
    limits = limits_of(
        given["replicas"],
        str(given["maxMigratingPerWorkload"]),
        str(given["maxUnavailablePerWorkload"]),
        compat=True,
    )
    is_over = bool(migrating) and len(migrating) >= limits.most_migrating
    is_away = count_away("", unready, migrating) >= limits.most_unavailable
    return {"allowed": not is_over and not is_away}


def _expected_replicas(given: Any) -> dict[str, Any]:
    limits = limits_of(
        given["replicas"],
        str(given["maxMigratingPerWorkload"]),
        str(given["maxUnavailablePerWorkload"]),
        compat=True,
    )
    return {"allowed": has_expected_replicas(given["replicas"], limits)}


def _fields(pod: MovedPod) -> dict[str, Any]:
    return {name: getattr(pod, name) for name in MovedPod.__dataclass_fields__}


ANSWERS = {
    "max_unavailable": _max_unavailable,
    "eviction_cost": _eviction_cost,
    "workload_unavailable": _workload_unavailable,
    "expected_replicas": _expected_replicas,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_worked_examples(case: Any) -> None:
    assert ANSWERS[case["kind"]](case["input"]) == case["expected"]


@pytest.mark.parametrize(
    ("written", "replicas", "most"),
    [("80%", 6, 4), ("150%", 6, 6), ("5", 6, 5), ("7", 6, 6), ("", 6, 2), ("", 50, 5), ("", 3, 1)],
)
def test_numbers_and_percentages(written: str, replicas: int, most: int) -> None:
    assert limit_of(written, replicas) == most


@pytest.mark.parametrize("written", ["0", "0%"])
def test_an_explicit_zero_means_never(written: str) -> None:
    assert limit_of(written, 50) == 0
    assert limit_of(written, 50, compat=True) == 1


@pytest.mark.parametrize(
    ("replicas", "migrating", "unavailable", "is_allowed"),
    [
        (1, "", "", False),
        (2, "", "", True),
        (2, "", "2", False),
        (4, "", "", True),
        (3, "100%", "", False),
        (0, "", "", False),
    ],
)
def test_some_replicas_must_remain(
    replicas: int,
    migrating: str,
    unavailable: str,
    is_allowed: bool,  # noqa: FBT001 - a column of the table
) -> None:
    limits = limits_of(replicas, migrating, unavailable)
    assert has_expected_replicas(replicas, limits) is is_allowed


def test_pods_that_are_both_unready_and_moved_count_once_and_the_pod_itself_never() -> None:
    workload = Workload("w", "web", 50, frozenset({"a", "b", "c"}))
    assert limit_of("", 50) == 5
    assert count_away("x", workload.unready, {"d", "e"}) == 5
    assert count_away("x", workload.unready, {"c", "d"}) == 4
    assert count_away("a", workload.unready, {"d", "e"}) == 4


@pytest.mark.parametrize(
    ("parallelism", "completions", "succeeded", "replicas"),
    [
        (8, 8, 0, 8),
        (8, 8, 3, 5),
        (10, 100, 50, 10),
        (10, 100, 95, 5),
        (4, None, 1, 3),
        (2, 1, 3, 0),
    ],
)
def test_a_job_runs_what_it_still_needs(
    parallelism: int, completions: int | None, succeeded: int, replicas: int
) -> None:
    assert replicas_of_job(parallelism, completions, succeeded) == replicas
