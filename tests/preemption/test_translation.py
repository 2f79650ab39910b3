"""What pods say about preemption."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from koord.domains.registry import make_pod_translator
from koord.kube.wire import WirePod

if TYPE_CHECKING:
    from koord.core.model.pods import Pod

POLICY = "scheduling.koordinator.sh/preemption-policy"
PROTECTED = "scheduling.koordinator.sh/disable-preemptible"
CHECKPOINTED = "operators.koordinator.sh/checkpointed-at"


def translate(
    policy: str | None = None, annotation: str = "", labels: dict[str, str] | None = None
) -> Pod:
    manifest = {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": "u",
            "labels": labels or {},
            "annotations": {CHECKPOINTED: annotation} if annotation else {},
        },
        "spec": {"preemptionPolicy": policy, "containers": []},
    }
    return make_pod_translator().translate(
        msgspec.json.decode(msgspec.json.encode(manifest), type=WirePod)
    )


@pytest.mark.parametrize(
    ("policy", "label", "never"),
    [
        (None, "", False),
        ("PreemptLowerPriority", "", False),
        ("Never", "", True),
        (None, "Never", True),
        ("Never", "PreemptLowerPriority", True),
        (None, "never", False),
    ],
)
def test_never_in_either_place_counts(policy: str | None, label: str, *, never: bool) -> None:
    labels = {POLICY: label} if label else {}
    assert translate(policy, labels=labels).never_preempts == never


def test_only_true_protects() -> None:
    assert translate(labels={PROTECTED: "true"}).is_protected
    assert not translate(labels={PROTECTED: "yes"}).is_protected
    assert not translate().is_protected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 0.0),
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T01:01:00+01:00", 60.0),
        ("yesterday", 0.0),
        ("9999-99-99T00:00:00Z", 0.0),
    ],
)
def test_a_time_that_cannot_be_read_is_none(text: str, seconds: float) -> None:
    assert translate(annotation=text).checkpointed == seconds
