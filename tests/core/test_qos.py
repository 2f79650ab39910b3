"""The QoS, the class and the numbers of pods, and what cannot be combined."""

import pytest

from koord.core.model.koordinator_class import (
    BANDS,
    DEFAULT_PRIORITIES,
    PRIORITY_CLASS_LABEL,
    QOS_LABEL,
    KoordinatorClass,
    KoordinatorQos,
    KubernetesQos,
    find_class,
    find_default_priority,
    find_qos,
    find_raw_class,
    find_raw_qos,
    name_of_tier,
    parse_sub_priority,
    rank_qos,
)
from koord.core.model.qos_rules import QosRule, describe, find_qos_problems

PROD, MID, BATCH, FREE = (
    KoordinatorClass.PROD,
    KoordinatorClass.MID,
    KoordinatorClass.BATCH,
    KoordinatorClass.FREE,
)


@pytest.mark.parametrize(
    ("labels", "priority", "is_best_effort", "raw", "expected"),
    [
        ({PRIORITY_CLASS_LABEL: "koord-foo"}, 9500, False, None, PROD),
        ({PRIORITY_CLASS_LABEL: "koord-foo"}, 5500, True, None, BATCH),
        ({PRIORITY_CLASS_LABEL: "koord-batch"}, 9500, False, BATCH, BATCH),
        ({}, 6500, True, None, BATCH),
        ({}, 6500, False, None, PROD),
        ({}, 9000, False, PROD, PROD),
        ({}, 9999, False, PROD, PROD),
        ({}, 10000, False, None, PROD),
        ({}, 7999, False, MID, MID),
        ({}, 3000, False, FREE, FREE),
        ({QOS_LABEL: "BE"}, 0, False, None, BATCH),
        ({QOS_LABEL: "LSR"}, 0, True, None, PROD),
        ({QOS_LABEL: "XX"}, 0, True, None, BATCH),
        ({PRIORITY_CLASS_LABEL: ""}, 9500, False, None, PROD),
    ],
)
def test_class_of_a_pod(labels, priority, is_best_effort, raw, expected):
    assert find_raw_class(labels, priority) is raw
    assert find_class(labels, priority, is_best_effort=is_best_effort) is expected


@pytest.mark.parametrize(
    ("label", "of_kubernetes", "raw", "expected"),
    [
        (None, "Guaranteed", None, "LSR"),
        (None, "Burstable", None, "LS"),
        (None, "BestEffort", None, "BE"),
        ("LSE", "BestEffort", "LSE", "LSE"),
        ("SYSTEM", "Burstable", "SYSTEM", "SYSTEM"),
        ("lse", "Guaranteed", None, "LSR"),
    ],
)
def test_qos_of_a_pod(label, of_kubernetes, raw, expected):
    labels = {} if label is None else {QOS_LABEL: label}
    assert find_raw_qos(labels) == raw
    assert find_qos(labels, KubernetesQos(of_kubernetes)) == expected


def test_order_of_eviction():
    ranks = {str(qos): rank_qos(qos) for qos in KoordinatorQos}
    assert ranks == {"SYSTEM": 4, "LSE": 4, "LSR": 3, "LS": 2, "BE": 1}
    assert rank_qos(None) == 5


def test_default_numbers_are_in_their_bands():
    assert [find_default_priority(band) for band in (PROD, MID, BATCH, FREE, None)] == [
        9500,
        7500,
        5500,
        3500,
        0,
    ]
    assert all(DEFAULT_PRIORITIES[band] in values for band, values in BANDS.items())


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("0", 0),
        ("17", 17),
        ("-3", -3),
        ("+3", 3),
        ("0x10", 16),
        ("0b11", 3),
        ("0o17", 15),
        ("017", 15),
        ("1_000", 1000),
        ("2147483647", 2147483647),
        ("2147483648", None),
        ("-2147483648", -2147483648),
        ("08", None),
        ("1.5", None),
        ("_1", None),
        (" 1", None),
        ("٣", None),
        ("9" * 5000, None),
    ],
)
def test_number_of_a_priority_label(text, number):
    assert parse_sub_priority(text) == number


def test_names_of_the_resources_of_a_class():
    assert name_of_tier(BATCH, "cpu") == "kubernetes.io/batch-cpu"
    assert name_of_tier(MID, "memory") == "kubernetes.io/mid-memory"
    assert name_of_tier(PROD, "cpu") == "cpu"
    assert name_of_tier(FREE, "cpu") == ""
    assert name_of_tier(BATCH, "nvidia.com/gpu") == ""


@pytest.mark.parametrize(
    ("qos", "priority", "requests", "rules"),
    [
        ("BE", 5500, {}, []),
        ("BE", 7500, {}, []),
        ("BE", 3500, {}, []),
        ("BE", 0, {}, [QosRule.FORBIDDEN_COMBINATION]),
        ("BE", 9500, {}, [QosRule.FORBIDDEN_COMBINATION]),
        ("LSR", 9500, {"cpu": 2500}, [QosRule.WHOLE_CPUS_REQUIRED]),
        ("LSR", 9500, {"cpu": 2000}, []),
        ("LSR", 7500, {"cpu": 2000}, [QosRule.FORBIDDEN_COMBINATION]),
        ("LSR", 0, {"cpu": 2000}, [QosRule.FORBIDDEN_COMBINATION]),
        ("LSE", 9500, {}, [QosRule.CPUS_REQUIRED]),
        ("LSE", 9500, {"cpu": 0}, [QosRule.CPUS_REQUIRED]),
        ("LSE", 5500, {"cpu": 1000}, []),
        ("LS", 9500, {"kubernetes.io/batch-cpu": 500}, [QosRule.BEST_EFFORT_REQUIRED]),
        ("", 5500, {"kubernetes.io/batch-memory": 5}, [QosRule.BEST_EFFORT_REQUIRED]),
        ("BE", 5500, {"kubernetes.io/batch-cpu": 500}, []),
        ("LS", 7500, {"kubernetes.io/mid-cpu": 500}, []),
        ("SYSTEM", 0, {"cpu": 1}, []),
        ("", 0, {"cpu": 1}, []),
    ],
)
def test_forbidden_combinations(qos, priority, requests, rules):
    labels = {QOS_LABEL: qos} if qos else {}
    problems = list(find_qos_problems(labels, priority, requests))
    assert [problem.rule for problem in problems] == rules
    assert all(map(describe, problems))


def test_texts_name_the_way_out():
    (problem,) = find_qos_problems({QOS_LABEL: "BE"}, 0, {})
    assert describe(problem) == (
        "QoS BE cannot be combined with no priority class: set priorityClassName to that of "
        "koord-batch or koord-free or koord-mid, or choose another QoS"
    )
    (problem,) = find_qos_problems({QOS_LABEL: "LSE"}, 9500, {"cpu": 2500})
    assert "LSE" in describe(problem)
    assert "2.5" in describe(problem)
