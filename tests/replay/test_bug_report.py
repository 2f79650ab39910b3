"""Records and metrics of a bug report have numbers and codes, and no names."""

from __future__ import annotations

from koord.replay.bug_report import MOST_RECORDS, strip_metrics, strip_records, strip_settings


def rename(text: str) -> str:
    return "renamed" if "acme" in text else text


def test_records_keep_codes_and_numbers_alone() -> None:
    unit = {"key": "acme/train", "namespace": "acme", "names": ["acme/train"], "pods": 4}
    record = {
        "seq": 7,
        "kind": "Attempt",
        "code": "QuotaExceeded",
        "text": "Quota acme is full.",
        "fields": {"quota": "acme"},
        "unit": unit,
    }
    (stripped,) = strip_records([record], rename)
    assert stripped == {
        "seq": 7,
        "kind": "Attempt",
        "code": "QuotaExceeded",
        "unit": {"names": ["renamed"], "pods": 4, "required": None},
    }
    many = [{"seq": number} for number in range(MOST_RECORDS + 3)]
    assert next(iter(strip_records(many, rename))) == {"seq": 3}


def test_labels_with_names_are_replaced_in_metrics() -> None:
    line = 'koord_used{quota="gone",resource="cpu",owner="acme"} 3\n'
    assert strip_metrics(line, lambda _: "x", rename) == (
        'koord_used{quota="x",resource="cpu",owner="renamed"} 3\n'
    )


def test_names_in_settings_are_replaced() -> None:
    assert strip_settings({"namespaces": ["acme", "kube-system"], "on": True}, rename) == {
        "namespaces": ["renamed", "kube-system"],
        "on": True,
    }
