"""Keys that are nearly right are named; those of others are left alone."""

import pytest

from koord.api.keys import device, gang, operators, quota, reservation
from koord.api.lint import lint_documents
from koord.api.manifest_text import read_documents
from koord.api.misspelled_keys import ANNOTATIONS, LABELS, find_misspelled_keys

POD = """\
kind: Job
metadata: {{name: a}}
spec:
  template:
    metadata:
      {where}: {{{key}: "x"}}
"""


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("gang.scheduling.koordinator.sh/nmae", gang.NAME),
        ("gang.scheduling.koordinator.sh/min-avaliable", gang.MIN_AVAILABLE),
        ("gang.schedulng.koordinator.sh/name", gang.NAME),
        ("gang.scheduling.koordinator.sh/whatever", gang.PREFIX),
        ("pod-group.scheduling.sig.k8s.io", gang.POD_GROUP),
        ("pod-groups.scheduling.sigs.k8s.io", gang.POD_GROUP),
        ("quota.scheduling.koordinator.sh/nmae", quota.NAME),
        ("quota.scheduling.koordinatr.sh/name", quota.NAME),
        ("quota.scheduling.koordinator.sh/preemptable", quota.PREEMPTIBLE),
        ("operators.koordinator.sh/on-member-failur", operators.ON_MEMBER_FAILURE),
        ("operators.koordinator.sh/sub-grup", operators.SUB_GROUP),
        ("scheduling.koordinator.sh/device-allocate-hints", device.ALLOCATE_HINT),
        ("scheduling.koordinator.sh/numa-topologyspec", device.NUMA_TOPOLOGY_SPEC),
        ("scheduling.koordinator.sh/reservation-afinity", reservation.AFFINITY),
        ("operators.koordinator.sh/network-topolgy", operators.TOPOLOGY),
    ],
)
def test_misspelled_keys_are_named_with_what_may_be_meant(key: str, meant: str) -> None:
    for slips in (find_misspelled_keys([key], ()), find_misspelled_keys((), [key])):
        (slip,) = slips
        assert slip.key == key
        assert meant in slip.problem


@pytest.mark.parametrize(
    "key",
    [
        *("app", "batch.kubernetes.io/job-name", "scheduling.koordinator.sh/gpu-model"),
        *(quota.PREFIX + "name", "scheduling.koordinator.sh/gpu-partition-policy"),
        *("internal.scheduling.koordinator.sh/bind-gang-group-id", "kueue.x-k8s.io/queue-name"),
    ],
)
def test_keys_of_others_are_left_alone(key: str) -> None:
    assert not [*find_misspelled_keys([key], [key])]


def test_few_keys_of_one_object_are_compared() -> None:
    many = [f"gang.scheduling.koordinator.sh/{at}" for at in range(1000)]
    assert len([*find_misspelled_keys(many, ())]) == 32


def test_every_key_of_ours_is_right_in_its_place_and_named_in_the_other() -> None:
    assert not [*find_misspelled_keys(LABELS, ANNOTATIONS)]
    wrong = {slip.key for slip in find_misspelled_keys(ANNOTATIONS, LABELS)}
    assert wrong == LABELS | ANNOTATIONS


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_lint_looks_into_pod_templates(where: str) -> None:
    key = "gang.scheduling.koordinator.sh/nmae"
    (checked,) = lint_documents(read_documents(POD.format(where=where, key=key)))
    (problem,) = checked.problems
    assert problem.field == f"spec.template.metadata.{where}[{key}]" or key in problem.field


def test_lint_names_an_index_that_is_no_number() -> None:
    (checked,) = lint_documents(
        read_documents(POD.format(where="annotations", key=gang.NETWORK_TOPOLOGY_INDEX))
    )
    (problem,) = checked.problems
    assert gang.NETWORK_TOPOLOGY_INDEX in problem.field
    assert (problem.value, problem.message) == (
        "x",
        "must be a whole number, not negative; in force is none",
    )
