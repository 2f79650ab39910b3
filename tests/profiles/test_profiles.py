"""What profiles do to pods, and which policies there are for them: worked examples and laws."""

import json
import random
import uuid

import pytest
from hypothesis import given
from tests.profiles.make import CLASSES, EXCLUDED, PODS, PROFILES, make_pod, make_profile

from koord.core.profiles.apply import apply_profiles, to_milli
from koord.core.profiles.generate import (
    RESERVATION_PREFIX,
    STAND_IN_PREFIX,
    PublishOutcome,
    generate,
    name_policy,
    write_verdict,
)
from koord.core.profiles.model import ClassValue
from koord.core.profiles.overlap import can_both_hold, group_profiles

BAND = "koordinator.sh/priority-class"
SKIP = {"config.koordinator.sh/skip-update-resources": ""}
BATCH_LABEL = {"koordinator.sh/priority-class": "koord-batch"}
PLAIN = {
    "image": "x",
    "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}},
}


def pod_with(resources=None, labels=None):
    one = PLAIN if resources is None else {"image": "x", "resources": resources}
    return make_pod(labels or {}, {}, [one], [], [])


def apply(pod, *profiles, namespace=None, classes=CLASSES):
    return apply_profiles(pod, namespace or {}, profiles, classes)


def policies_for_pods(*profiles, classes=CLASSES):
    policies = generate(profiles, classes, EXCLUDED).policies
    return [policy for policy in policies if not policy.name.startswith(RESERVATION_PREFIX)]


def resources_of(applied):
    return applied.pod["spec"]["containers"][0]["resources"]


def test_batch_pods_get_batch_resources():
    applied = apply(pod_with(), make_profile("a", labels=BATCH_LABEL))
    assert resources_of(applied) == {
        "requests": {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"},
        "limits": {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"},
    }


BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"


def test_agent_is_told_what_containers_have_of_batch_resources():
    key = "node.koordinator.sh/extended-resource-spec"
    pod = make_pod({}, {key: "a lie"}, [PLAIN, {"image": "x"}], [PLAIN], [])
    annotations = apply(pod, make_profile("a", labels=BATCH_LABEL)).pod["metadata"]["annotations"]
    assert json.loads(annotations[key]) == {
        "containers": {
            "c0": {
                "limits": {BATCH_CPU: "1000", BATCH_MEMORY: "1Gi"},
                "requests": {BATCH_CPU: "500", BATCH_MEMORY: "1Gi"},
            }
        }
    }
    mid = apply(pod_with(), make_profile("a", priorityClassName="koord-mid")).pod["metadata"]
    assert key not in mid["annotations"]


def test_what_is_asked_for_the_whole_pod_goes_to_the_first_container():
    pod = make_pod({}, {}, [{"image": "x"}, PLAIN], [], [])
    pod["spec"]["resources"] = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "4"}}
    spec = apply(pod, make_profile("a", labels=BATCH_LABEL)).pod["spec"]
    assert spec["containers"][0]["resources"] == {
        "requests": {BATCH_CPU: "1500"},
        "limits": {BATCH_CPU: "3000"},
    }
    assert spec["containers"][1]["resources"]["requests"][BATCH_CPU] == "500"
    assert "resources" not in spec
    pod["spec"]["resources"] = {"requests": {"cpu": "2", "hugepages-2Mi": "4Mi"}}
    spec = apply(pod, make_profile("a", labels=BATCH_LABEL)).pod["spec"]
    assert spec["resources"] == {"requests": {"hugepages-2Mi": "4Mi"}}


def test_label_of_another_class_is_replaced():
    """Or whoever creates a pod decides its class, not the profile."""
    profile = make_profile("a", qosClass="BE", priorityClassName="koord-batch")
    for says in ("koord-prod", "koord-free", "nonsense"):
        applied = apply(pod_with(labels={"koordinator.sh/priority-class": says}), profile)
        assert applied.pod["metadata"]["labels"]["koordinator.sh/priority-class"] == "koord-batch"
        assert BATCH_CPU in resources_of(applied)["requests"]
    assert (
        "koordinator.sh/priority-class" not in apply(pod_with(), profile).pod["metadata"]["labels"]
    )
    own = make_profile("a", priorityClassName="koord-batch", labelKeysMapping={"a": BAND})
    applied = apply(pod_with(labels={BAND: "koord-prod"}), own)
    assert applied.pod["metadata"]["labels"] == {BAND: "koord-prod"}
    other = make_profile("a", priorityClassName="other")  # of no range: the label says it
    applied = apply(pod_with(labels={BAND: "koord-prod"}), other)
    assert applied.pod["metadata"]["labels"] == {BAND: "koord-prod"}


def test_pods_of_free_and_prod_keep_their_resources():
    for name in ("koord-free", "koord-prod"):
        labels = {"koordinator.sh/priority-class": name}
        applied = apply(pod_with({"requests": {"cpu": "1"}}), make_profile("a", labels=labels))
        assert resources_of(applied) == {"requests": {"cpu": "1"}}
        # What the API server itself fills in: a request for each limit.
        assert resources_of(apply(pod_with(), make_profile("a", labels=labels))) == {
            "requests": {"cpu": "500m", "memory": "1Gi"},
            "limits": {"cpu": "1", "memory": "1Gi"},
        }


def test_mid_pod_with_requests_only():
    profile = make_profile("a", priorityClassName="koord-mid")
    applied = apply(pod_with({"requests": {"cpu": "1500m"}}), profile)
    assert resources_of(applied) == {"requests": {"kubernetes.io/mid-cpu": "1500"}}


def test_profile_that_skips_resources_counts_also_beside_one_that_never_applies():
    never = make_profile("a", probability=0, qosClass="BE", priorityClassName="koord-batch")
    skip = make_profile("b", SKIP, labels={"team": "x"})
    applied = apply(pod_with(labels={"koordinator.sh/qosClass": "BE"}), never, skip)
    assert applied.names == ("b",)
    assert "cpu" in resources_of(applied)["requests"]


def test_profile_that_never_applies_translates_nothing():
    never = make_profile("a", probability="0%", qosClass="BE", priorityClassName="koord-batch")
    applied = apply(pod_with(labels={"koordinator.sh/qosClass": "BE"}), never)
    assert applied.names == ()
    assert "cpu" in resources_of(applied)["requests"]


def test_best_effort_pod_without_priority_is_translated():
    applied = apply(
        pod_with(labels={"koordinator.sh/qosClass": "BE"}), make_profile("a", labels={"t": "x"})
    )
    assert "kubernetes.io/batch-cpu" in resources_of(applied)["requests"]


def test_later_profiles_see_what_earlier_ones_wrote_but_are_chosen_before():
    first = make_profile("a", labels={"team": "x"}, selector={"matchLabels": {"app": "y"}})
    second = make_profile(
        "b", labelKeysMapping={"team": "copy", "none": "no"}, labelSuffixes={"app": "-1"}
    )
    third = make_profile("c", labels={"c": "1"}, selector={"matchLabels": {"team": "x"}})
    applied = apply(make_pod({"app": "y"}, {}, [PLAIN], [], []), third, second, first)
    assert applied.names == ("a", "b")
    assert applied.pod["metadata"]["labels"] == {"app": "y-1", "team": "x", "copy": "x"}


def test_priority_has_name_value_and_policy():
    applied = apply(pod_with(), make_profile("a", priorityClassName="patient"))
    spec = applied.pod["spec"]
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == (
        "patient",
        5100,
        "Never",
    )


def test_patch_merges_maps_and_replaces_lists():
    patch = {
        "metadata": {"labels": {"l": "1"}, "annotations": {"n": "2"}, "finalizers": ["x"]},
        "spec": {
            "nodeSelector": {"pool": "batch"},
            "tolerations": [{"key": "batch", "operator": "Exists"}],
            "containers": [{"name": "c"}],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        },
    }
    profile = make_profile("a", patch=patch)
    assert profile.left_out == ("metadata.finalizers", "spec.containers")
    pod = pod_with()
    pod["spec"] |= {"nodeSelector": {"zone": "1"}, "tolerations": [{"operator": "Exists"}]}
    spec = apply(pod, profile).pod["spec"]
    assert spec["nodeSelector"] == {"zone": "1", "pool": "batch"}
    assert spec["tolerations"] == [{"key": "batch", "operator": "Exists"}]


@pytest.mark.parametrize(
    "spec",
    [
        {"labels": {"not a key": "x"}},
        {"labels": {"a": "not a value!"}},
        {"labels": {"hami.io/vgpu-node": "n"}},
        {"annotations": {"operators.koordinator.sh/plan": "{}"}},
        {"annotations": {"scheduling.koordinator.sh/gpu-core-limit-0": "1"}},
        {"annotationKeysMapping": {"a": "scheduling.koordinator.sh/device-allocated"}},
        {"labelSuffixes": {"a": "-"}},
        {"selector": {"matchLabels": {"a": "x" * 64}}},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        {"probability": 101},
        {"probability": "030%"},
        {"koordinatorPriority": -1},
        {"patch": {"metadata": {"labels": {"a": None}}}},
        {"patch": {"spec": {"tolerations": [{"operator": "Exists", "value": "x"}]}}},
        {"patch": {"spec": {"tolerations": [{"key": "a", "tolerationSeconds": 5}]}}},
        {
            "patch": {
                "spec": {
                    "affinity": {
                        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}
                    }
                }
            }
        },
        {"patch": {"spec": {"nodeSelector": {"a b": "c"}}}},
    ],
    ids=str,
)
def test_what_would_have_pods_refused_is_invalid(spec):
    assert make_profile("a", **spec).is_invalid


def test_profile_with_a_missing_class_writes_nothing():
    profile = make_profile("a", priorityClassName="gone", labels={"a": "b"})
    verdict = generate([profile], CLASSES, EXCLUDED).verdicts["a"]
    assert verdict.outcome is PublishOutcome.PRIORITY_CLASS_MISSING
    assert "PriorityClass gone" in write_verdict(profile, verdict)
    assert apply(pod_with(), profile).names == ()


def test_combination_that_is_refused_is_not_published():
    profile = make_profile("a", qosClass="BE", priorityClassName="koord-prod")
    made = generate([profile], CLASSES, EXCLUDED)
    assert made.policies == ()
    assert made.verdicts["a"].outcome is PublishOutcome.FORBIDDEN_COMBINATION
    assert "QoS BE cannot be combined with koord-prod" in write_verdict(profile, made.verdicts["a"])


def test_class_that_the_label_says_counts_for_the_combination():
    profile = make_profile("a", qosClass="BE", priorityClassName="koord-prod", labels=BATCH_LABEL)
    assert generate([profile], CLASSES, EXCLUDED).policies


def test_probability_of_pods_is_refused_and_of_owners_is_not():
    for spec, outcome in (
        ({"probability": 30}, PublishOutcome.PROBABILITY),
        ({"probability": "30%"}, PublishOutcome.PROBABILITY),
        ({"probability": 30, "probabilityScope": "Owner"}, PublishOutcome.PUBLISHED),
        ({"probability": 100}, PublishOutcome.PUBLISHED),
        ({"probability": 0}, PublishOutcome.NEVER),
    ):
        verdict = generate([make_profile("a", **spec)], {}, EXCLUDED).verdicts["a"]
        assert verdict.outcome is outcome


def test_lot_of_an_owner_is_fair_and_the_same_for_all_of_its_pods():
    source = random.Random(7)  # noqa: S311
    profile = make_profile("a", probability=30, probabilityScope="Owner", labels={"a": "b"})
    hits = 0
    for _ in range(2000):
        uid = str(uuid.UUID(int=source.getrandbits(128), version=4))
        owner = {"kind": "Job", "uid": uid, "controller": True}
        pods = [make_pod({}, {}, [PLAIN], [], [owner]) for _ in range(2)]
        named = {apply(pod, profile).names for pod in pods}
        assert len(named) == 1
        hits += named == {("a",)}
    assert 520 < hits < 680


def test_profiles_that_cannot_meet_have_policies_of_their_own():
    one = make_profile("a", selector={"matchLabels": {"app": "x"}})
    other = make_profile("b", selector={"matchLabels": {"app": "y"}})
    both = make_profile("c", selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]})
    feeding = make_profile("d", selector={"matchLabels": {"app": "z"}}, labels={"app": "x"})
    named = [[profile.name for profile in group] for group in group_profiles([other, one])]
    assert named == [["a"], ["b"]]
    assert len(group_profiles([one, other, both])) == 1
    assert len(group_profiles([one, other, feeding])) == 1, "it writes what they select by"


def test_selectors_that_exclude_each_other():
    def requirements(**spec):
        return make_profile("a", selector=spec).selector

    x = requirements(matchLabels={"k": "x"})
    gone = requirements(matchExpressions=[{"key": "k", "operator": "DoesNotExist"}])
    not_x = requirements(matchExpressions=[{"key": "k", "operator": "NotIn", "values": ["x"]}])
    there = requirements(matchExpressions=[{"key": "k", "operator": "Exists"}])
    other = requirements(matchLabels={"l": "x"})
    assert not can_both_hold(x, gone)
    assert not can_both_hold(x, not_x)
    assert not can_both_hold(there, gone)
    assert can_both_hold(not_x, gone)
    assert can_both_hold(x, there)
    assert can_both_hold(x, other)
    assert can_both_hold((), x)


def test_one_change_of_the_pod_is_called_again_only_where_that_is_harmless():
    def invocation(*profiles):
        (policy,) = policies_for_pods(*profiles)
        return policy.spec["reinvocationPolicy"]

    assert invocation(make_profile("a", labels={"x": "y"})) == "IfNeeded"
    assert invocation(make_profile("a", labelSuffixes={"x": "y"})) == "Never"
    assert invocation(make_profile("a", labelKeysMapping={"x": "y"})) == "IfNeeded"
    copied = make_profile("a", labelKeysMapping={"x": "y"})
    assert invocation(copied, make_profile("b", labels={"x": "1"})) == "Never"
    selecting = make_profile("b", selector={"matchLabels": {"x": "y"}})
    assert invocation(make_profile("a", labels={"x": "y"}), selecting) == "Never"


def test_too_much_text_costs_only_the_last_profiles():
    texts = {f"k{number}": "x" * 4000 for number in range(10)}
    profiles = [make_profile(f"p{number}", annotations=texts) for number in range(4)]
    made = generate(profiles, CLASSES, EXCLUDED)
    assert [verdict.outcome for _, verdict in sorted(made.verdicts.items())] == [
        PublishOutcome.PUBLISHED,
        PublishOutcome.PUBLISHED,
        PublishOutcome.TOO_LARGE,
        PublishOutcome.TOO_LARGE,
    ]
    assert made.verdicts["p0"].beside == ("p1",)


def test_names_of_policies():
    assert name_policy("batch") == "koord-profile-batch"
    assert len(name_policy("a" * 253)) <= 253
    assert name_policy("a" * 253) != name_policy("a" * 252 + "b")


def test_milli_cpus_are_rounded_up():
    given = ["1", "500m", "0.1", "1.5", "1e1", "0.0005", "2k", "x"]
    assert [to_milli(each) for each in given] == [
        "1000",
        "500",
        "100",
        "1500",
        "10000",
        "1",
        "2000000",
        "x",
    ]
    assert to_milli("9" * 30) == to_milli("9223372036854775807") == "1000000000000000"
    assert to_milli("9" * 6000) == "9" * 6000, "no quantity, and too long for a number of Python"


@given(PROFILES)
def test_every_profile_has_one_verdict_and_at_most_one_policy(profiles):
    made = generate(profiles, CLASSES, EXCLUDED)
    assert set(made.verdicts) == {profile.name for profile in profiles}
    assert generate(reversed(profiles), CLASSES, EXCLUDED) == made
    names = [policy.name for policy in made.policies]
    assert len(set(names)) == len(names)
    for profile in profiles:
        assert write_verdict(profile, made.verdicts[profile.name])


@given(PROFILES, PODS)
def test_applying_twice_changes_nothing_where_it_may_be_called_again(profiles, pod):
    made = generate(profiles, CLASSES, EXCLUDED)
    once = apply(pod, *profiles)
    if all(policy.spec["reinvocationPolicy"] == "IfNeeded" for policy in made.policies):
        assert apply(once.pod, *profiles) == once


@given(PODS)
def test_pods_that_no_profile_selects_stay(pod):
    profile = make_profile("a", selector={"matchLabels": {"never": "x"}}, qosClass="BE")
    applied = apply(pod, profile)
    assert applied.names == ()
    assert applied.pod["metadata"] == pod["metadata"]


def test_policy_is_bound_to_its_class():
    profiles = [make_profile("a", priorityClassName="patient"), make_profile("b", labels={"b": ""})]
    stand_in, policy = policies_for_pods(*profiles)
    assert policy.priority_class == "patient"
    assert "paramKind" in policy.spec
    assert (stand_in.priority_class, "paramKind" in stand_in.spec) == ("", False)
    _, again = policies_for_pods(*profiles, classes={"patient": ClassValue(5101)})
    assert again == policy, "the value is read when a pod is created"


def test_other_profiles_are_applied_without_the_class_if_it_is_the_same_twice():
    first = make_profile("a", priorityClassName="patient")
    for second, count in (
        (make_profile("b", labels={"b": ""}), 2),
        (make_profile("b", labelSuffixes={"app": "-1"}), 1),  # would be appended twice
        (make_profile("b", probability=0, labels={"b": ""}), 1),
        (make_profile("b", priorityClassName="patient", labels={"b": ""}), 1),
    ):
        assert len(policies_for_pods(first, second)) == count
    assert name_policy("a" * 253, STAND_IN_PREFIX) != name_policy("a" * 253)


@pytest.mark.parametrize(
    ("spec", "has_policy"),
    [
        ({"labels": {"a": "b"}}, True),
        ({"qosClass": "BE"}, True),
        ({"labels": {"a": "b"}, "namespaceSelector": {"matchLabels": {"x": "y"}}}, False),
        ({"priorityClassName": "koord-batch", "schedulerName": "x"}, False),
        ({"labels": {"a": "b"}, "probability": 30, "probabilityScope": "Owner"}, False),
    ],
)
def test_profiles_that_write_labels_or_annotations_are_for_reservations(spec, has_policy):
    policies = generate([make_profile("a", **spec)], CLASSES, EXCLUDED).policies
    named = [policy for policy in policies if policy.name.startswith(RESERVATION_PREFIX)]
    assert bool(named) is has_policy
    assert all("spec" not in json.dumps(policy.spec["mutations"]) for policy in named)


def test_new_value_of_one_of_several_classes_is_a_new_policy():
    profiles = [
        make_profile("a", priorityClassName="patient"),
        make_profile("b", priorityClassName="other"),
    ]
    (first,) = generate(profiles, CLASSES, EXCLUDED).policies
    assert first.priority_class == ""
    (second,) = generate(profiles, {**CLASSES, "patient": ClassValue(5101)}, EXCLUDED).policies
    assert first.name == second.name
    assert first.spec != second.spec
