"""Records, metrics and settings of a bug report have numbers and codes, and no names."""

from __future__ import annotations

import tomllib
from pathlib import Path

import koord
from koord.replay.bug_report import (
    CODED_LABELS,
    MOST_RECORDS,
    NameRemover,
    strip_metrics,
    strip_records,
    strip_settings,
)

METRICS = Path(koord.__file__).parent / "reference/metrics.toml"
NAMES = frozenset({"acme", "acme/train"})
REMOVER = NameRemover(NAMES, frozenset({"acme.com/license"}), lambda _: "renamed")


def test_records_keep_codes_and_numbers_alone() -> None:
    unit = {"key": "acme/train", "namespace": "acme", "names": ["acme/train"], "pods": 4}
    record = {
        "seq": 7,
        "at": "2026-11-25T08:00:00.000Z",
        "kind": "Attempt",
        "code": "QuotaExceeded",
        "text": "Quota acme is full.",
        "fields": {"quota": "acme"},
        "planId": "3f0a",
        "policy": "acme-moves",
        "unit": unit,
    }
    (stripped,) = strip_records([record], REMOVER)
    assert stripped == {
        "seq": 7,
        "at": "2026-11-25T08:00:00.000Z",
        "kind": "Attempt",
        "code": "QuotaExceeded",
        "policy": "renamed",
        "unit": {"names": ["renamed"], "pods": 4, "required": None},
    }
    many = [{"seq": number} for number in range(MOST_RECORDS + 3)]
    assert next(iter(strip_records(many, REMOVER))) == {"seq": 3}


def test_labels_keep_what_is_known_to_be_no_name() -> None:
    """Also those of objects that are gone, and labels that nobody has thought of."""
    line = 'used{quota="customer",podname="customer-0",UUID="GPU-1",kind="held",resource="%s"} 3\n'
    kept = 'used{quota="renamed",podname="renamed",UUID="renamed",kind="held",resource="%s"} 3\n'
    for resource in ("nvidia.com/gpu", "acme.com/license"):
        assert strip_metrics(line % resource, REMOVER) == kept % resource


def test_every_label_of_a_series_is_a_code_or_replaced() -> None:
    """A label that is added is replaced until somebody says that it has no names."""
    entries = tomllib.loads(METRICS.read_text("utf-8"))
    series = [entry for entries in entries.values() for entry in entries if "labels" in entry]
    labels = {label for entry in series for label in entry["labels"]}
    assert labels - CODED_LABELS == {
        *("quota", "name", "tree", "parent", "queue", "namespace", "pod", "container", "node"),
        *("uuid", "model", "resource", "policy", "shape", "hook", "plugin", "kind"),
    }


def test_settings_keep_fields_and_numbers() -> None:
    settings = {
        "namespaces": ["acme", "customer-7", "kube-system"],
        "on": True,
        "after": "10m",
        "nodeSelector": {"acme.com/pool": "secret", "acme": "customer"},
        "url": "https://user:password@prometheus.acme.com",
    }
    assert strip_settings(settings, REMOVER) == {
        "namespaces": ["renamed", "renamed", "kube-system"],
        "on": True,
        "after": "10m",
        "nodeSelector": {"renamed": "renamed"},
        "url": "renamed",
    }
