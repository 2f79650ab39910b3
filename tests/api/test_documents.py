"""YAML is read as kubectl reads it."""

from typing import Any

import pytest

from koord.api.manifest_text import MAX_FILE_BYTES, UnreadableError, read_documents

BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0000:09:00.0", "0000:09:00.0"),  # a PCI address, not a base-60 number
        ("12:30", "12:30"),
        ("2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z"),  # a string in JSON
        ("2030-01-01", "2030-01-01"),
        ("100", 100),
        ("-7", -7),
        ("0x10", 16),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("'true'", "true"),
        ("1Gi", "1Gi"),
        ("null", None),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    assert list(read_documents(f"a: {text}")) == [{"a": value}]


def test_empty_documents_are_left_out() -> None:
    assert list(read_documents("---\n---\na: 1\n---\n# nothing\n---\n- b\n")) == [{"a": 1}, ["b"]]


def test_merges_and_anchors_are_read() -> None:
    text = "base: &base {cpu: 1}\nlimits: {<<: *base, memory: 2}\n"

    assert list(read_documents(text)) == [{"base": {"cpu": 1}, "limits": {"cpu": 1, "memory": 2}}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: duplicate key 'a'"),
        ("a: [1\n", "line 2"),
        ("a: b: c\n", "line 1: mapping values are not allowed here"),
        ("a: !!python/object:os.system {}\n", "line 1"),
        ("[" * 700, "YAML"),
        ("a: " + "x" * MAX_FILE_BYTES, "is larger than"),
        ("a: \x00", "not allowed"),
        ("{[1]: 2}", "line 1"),
        ("&a [*a]", "expand to too many values"),
        (BOMB, "expand to too many values"),
    ],
)
def test_documents_that_kubectl_rejects_are_rejected_with_the_line(text: str, message: str) -> None:
    with pytest.raises(UnreadableError, match=message):
        list(read_documents(text))
