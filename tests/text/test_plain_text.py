"""What is not printable is escaped wherever text of strangers is shown; JSON keeps its meaning."""

import io
import json
import logging
from unicodedata import category

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from koord.api.device_templates import parse_templates
from koord.api.json_text import load_json
from koord.api.manifest_text import UnreadableError, read_documents
from koord.api.parse import InvalidObject
from koord.api.parse import cut as cut_value
from koord.core.model.text import cut
from koord.kube.events import MAX_NOTE, _cut
from koord.kube.status import ConditionPatch, StatusPatch, render
from koord.plain_text import escape, escape_line
from koord.runtime.logs import JsonFormatter, TextFormatter
from koord.runtime.settings import InvalidConfiguration, parse_settings

EVIL = "\x1b[2J\x1b]0;owned\x07\u202e\u2066gpj\x9b31m\r\nlevel=error msg=forged\x7f\ud800"
TEXTS = st.text(st.characters(codec=None, exclude_categories=()))


def is_harmless(text: str, *, keeps: str = "\n\t") -> bool:
    return all(one.isprintable() or category(one) == "Zs" or one in keeps for one in text)


@given(TEXTS)
def test_nothing_else_than_printable_text_is_left(text: str) -> None:
    assert is_harmless(escape(text))
    assert is_harmless(escape_line(text), keeps="")
    assert escape(escape(text)) == escape(text)
    assert escape(text).encode().decode() == escape(text)
    if is_harmless(text):
        assert escape(text) == text


@given(TEXTS)
def test_documents_keep_their_meaning(text: str) -> None:
    document = json.dumps({"a": text}, ensure_ascii=False, indent=1)
    assert json.loads(escape(document)) == {"a": text}


def test_a_worked_example() -> None:
    assert (
        escape("a\x1b[31mb\n\tc\u202ed\xa0é漢😀\x9b")
        == "a\\u001b[31mb\n\tc\\u202ed\xa0é漢😀\\u009b"
    )
    assert escape_line("a\r\nb") == "a\\r\\nb"


@pytest.mark.parametrize("limit", [1, 5, 30, 300])
@pytest.mark.parametrize("shorten", [cut, lambda text, _: cut_value(text)])
def test_quoted_texts_stay_in_their_line(shorten, limit: int) -> None:
    shown = shorten(EVIL * 20, limit)
    assert is_harmless(shown, keeps="")
    assert len(shown) <= max(limit, 81)


def test_what_is_written_to_objects_can_be_encoded() -> None:
    note = _cut(EVIL * 200)
    assert is_harmless(note)
    assert len(note.encode()) <= MAX_NOTE
    patch = StatusPatch((ConditionPatch("A", True, "B", EVIL),))
    message = render(patch, {}, 0.0)["conditions"][0]["message"]
    assert is_harmless(message)
    assert message.encode()


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_no_record_of_the_log_is_forged(formatter: logging.Formatter) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    log = logging.Logger("koord")  # noqa: LOG001 - of this test alone
    log.addHandler(handler)
    try:
        load_json(EVIL)
    except ValueError:
        log.exception(EVIL, extra={"pod": EVIL})
    text = stream.getvalue()
    assert is_harmless(text)
    assert text.encode()
    assert not any(line.startswith("level=") for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "found"),
    [('"\\ud83d\\ude00"', "😀"), ('{"a\\ud83d\\ude00": 1}', {"a😀": 1}), ('"é"', "é")],
)
def test_pairs_are_joined_as_kubectl_does(text: str, found: object) -> None:
    assert list(read_documents(text)) == [found]
    assert load_json(text) == found


@pytest.mark.parametrize(
    "text", ['"\\ud800"', '["\\udc00"]', '{"a\\udfff": 1}', '"\\ude00\\ud83d"']
)
def test_halves_of_pairs_are_refused_wherever_text_is_decoded(text: str) -> None:
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        load_json(text)
    with pytest.raises(UnreadableError, match="half of a surrogate pair"):
        list(read_documents(text))
    with pytest.raises(InvalidConfiguration, match="half of a surrogate pair"):
        parse_settings(text, "file")
    refused = parse_templates(text)
    assert isinstance(refused, InvalidObject)
    assert "half of a surrogate pair" in refused.problems[0].message
    assert yaml.safe_load(text) is not None, "it is YAML, which is why we have to look"
