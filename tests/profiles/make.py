"""Makes profiles for tests: by hand, as objects, and by hypothesis."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from koord.core.profiles.model import ClassValue, ColocationProfile
from koord.kube.translate.profiles import ColocationProfileTranslator
from koord.kube.wire import WireCustomResource

CLASSES = {
    "koord-prod": ClassValue(9000),
    "koord-batch": ClassValue(5000),
    "koord-mid": ClassValue(7000),
    "patient": ClassValue(5100, never_preempts=True),
    "other": ClassValue(42),
}
EXCLUDED = ("kube-system", "koord-system")


def make_object(
    name: str, annotations: dict[str, str] | None = None, /, **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": spec,
    }


def make_profile(
    name: str, annotations: dict[str, str] | None = None, /, **spec: Any
) -> ColocationProfile:
    """Return a profile as it is read from an object."""
    body = make_object(name, annotations, **spec)
    body["metadata"]["uid"] = f"uid-{name}"
    wire = msgspec.json.decode(msgspec.json.encode(body), type=WireCustomResource)
    return ColocationProfileTranslator().translate(wire)


KEYS = st.sampled_from(["a", "b", "example.com/c", "koordinator.sh/priority-class", "app"])
VALUES = st.sampled_from(["x", "y", "koord-batch", "koord-mid", "koord-prod", "", "A.b_c-9"])
NASTY = st.text(
    st.one_of(
        st.sampled_from("\"'\\\n\r\t{}[]$%`;+\x00\x7f\u2028 é𝄞"), st.characters(codec="utf-8")
    ),
    max_size=20,
)
LABELS = st.dictionaries(KEYS, VALUES, max_size=3)
ANNOTATIONS = st.dictionaries(st.sampled_from(["n", "example.com/m", "o~p"[:1]]), NASTY, max_size=2)
REQUIREMENTS = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES, min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        KEYS,
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
SELECTORS = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.dictionaries(KEYS, VALUES, max_size=1),
        "matchExpressions": st.lists(REQUIREMENTS, max_size=2),
    },
)
PATCHES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {}, optional={"labels": LABELS, "annotations": ANNOTATIONS}
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "nodeSelector": LABELS,
                "tolerations": st.just(
                    [
                        {
                            "key": "batch",
                            "operator": "Exists",
                            "effect": "NoExecute",
                            "tolerationSeconds": 7,
                        }
                    ]
                ),
                "affinity": st.just(
                    {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [
                                    {
                                        "matchExpressions": [
                                            {"key": "pool", "operator": "In", "values": ["a", "b"]}
                                        ]
                                    }
                                ]
                            }
                        }
                    }
                ),
            },
        ),
    },
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "selector": SELECTORS,
        "labels": LABELS,
        "annotations": ANNOTATIONS,
        "labelKeysMapping": st.dictionaries(KEYS, KEYS, max_size=2),
        "annotationKeysMapping": st.dictionaries(
            st.sampled_from(["n", "m"]), st.sampled_from(["n", "k"]), max_size=1
        ),
        "labelSuffixes": st.dictionaries(
            KEYS, st.sampled_from(["-x", "9", "-" + "z" * 60]), max_size=1
        ),
        "schedulerName": st.sampled_from(["koord-scheduler", "volcano"]),
        "qosClass": st.sampled_from(["LSE", "LSR", "LS", "BE", "SYSTEM"]),
        "priorityClassName": st.sampled_from([*CLASSES, "missing"]),
        "koordinatorPriority": st.integers(0, (1 << 31) - 1),
        "probability": st.sampled_from([0, 100, "0%", "100%", 30]),
        "probabilityScope": st.sampled_from(["Pod", "Owner"]),
        "patch": PATCHES,
    },
)
PROFILES = st.lists(
    st.tuples(
        SPECS, st.sampled_from([{}, {}, {"config.koordinator.sh/skip-update-resources": ""}])
    ),
    min_size=1,
    max_size=4,
).map(
    lambda made: [
        make_profile(f"p{number}", annotations, **spec)
        for number, (spec, annotations) in enumerate(made)
    ]
)
AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["1", "500m", "0.1", "1500m", "2", "1e1"]),
        "memory": st.sampled_from(["1Gi", "128Mi", "1000", "1.5Gi"]),
    },
)
CONTAINERS = st.builds(
    lambda limits: {"image": "x", "resources": {"limits": limits}}, AMOUNTS
) | st.builds(lambda requests: {"image": "x", "resources": {"requests": requests}}, AMOUNTS)
OWNERS = st.uuids(version=4).map(
    lambda uid: [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": str(uid), "controller": True}
    ]
)


def make_pod(
    labels: dict[str, str],
    annotations: dict[str, str],
    containers: list[Any],
    starting: list[Any],
    owners: list[Any],
) -> dict[str, Any]:
    named = [{**one, "name": f"c{at}"} for at, one in enumerate(containers)]
    init = [{**one, "name": f"i{at}"} for at, one in enumerate(starting)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "p-",
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": owners,
        },
        "spec": {"containers": named, "initContainers": init},
    }


PODS = st.builds(
    make_pod,
    LABELS,
    st.dictionaries(st.sampled_from(["n", "m"]), NASTY, max_size=2),
    st.lists(CONTAINERS, min_size=1, max_size=2),
    st.lists(CONTAINERS, max_size=1),
    st.one_of(st.just([]), OWNERS),
)
