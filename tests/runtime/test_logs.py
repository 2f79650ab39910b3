"""Log lines in both formats."""

import io
import json
import logging

import pytest
from aiohttp.http_exceptions import LineTooLong

from koord.runtime.logs import JsonFormatter, LogFormat, TextFormatter, configure_logging


def make_record(message="bound", *args, level=logging.INFO, exc_info=None, **fields):
    logger = logging.getLogger("koord.test")
    return logger.makeRecord(
        logger.name, level, "file", 1, message, args, exc_info, extra=fields or None
    )


def info_of(message):
    return RuntimeError, RuntimeError(message), None


def test_json_has_the_standard_keys_and_the_fields():
    line = json.loads(JsonFormatter().format(make_record(pod="default/a", status=409)))
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "koord.test",
        "message": "bound",
        "pod": "default/a",
        "status": 409,
    }


def test_json_stays_on_one_line():
    text = JsonFormatter().format(make_record("a\nb", exc_info=info_of("first\nsecond")))
    assert "\n" not in text
    assert "RuntimeError: first" in json.loads(text)["traceback"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("default/a", "pod=default/a"),
        ("two words", 'pod="two words"'),
        ("", 'pod=""'),
        ("a\nINFO forged", 'pod="a\\nINFO forged"'),
        ('a"b', 'pod="a\\"b"'),
        (7, "pod=7"),
        (None, "pod=None"),
    ],
)
def test_text_quotes_ambiguous_values(value, written):
    line = TextFormatter().format(make_record(pod=value))
    assert line.endswith(f"bound {written}")
    assert "\n" not in line


def test_message_cannot_forge_a_line():
    assert "\n" not in TextFormatter().format(make_record("%s", "a\nb"))


def test_text_ends_with_the_traceback():
    text = TextFormatter().format(make_record(exc_info=info_of("lost")))
    assert text.splitlines()[-1] == "  RuntimeError: lost", (
        "indented: no line can be taken for a record"
    )


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_objects_do_not_become_fields(formatter):
    record = make_record(pod="a", spec={"env": "hunter2"}, settings=object(), raw=b"hunter2")
    line = formatter.format(record)
    assert "hunter2" not in line
    assert "settings" not in line


def test_the_object_of_a_kopf_record_is_named():
    reference = {"kind": "PodGroup", "name": "a", "namespace": "default", "uid": "u"}
    line = json.loads(JsonFormatter().format(make_record(k8s_ref=reference, k8s_skip=True)))
    assert (line["kind"], line["object"]) == ("PodGroup", "default/a")
    assert "k8s_skip" not in line


@pytest.fixture
def root_logger():
    root = logging.getLogger()
    before = list(root.handlers), root.level
    yield root
    root.handlers[:], root.level = before


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_all_records_go_to_one_stream_in_one_format(root_logger, log_format):
    stream = io.StringIO()
    configure_logging(log_format, stream)
    logging.getLogger("koord.a").info("hello", extra={"pod": "default/a"})
    logging.getLogger("koord.a").debug("unseen")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("{") == (log_format is LogFormat.JSON)
    assert len(root_logger.handlers) == 1


@pytest.mark.usefixtures("root_logger")
def test_requests_that_are_no_http_are_not_logged():
    stream, log = io.StringIO(), logging.getLogger("aiohttp.server")
    configure_logging(LogFormat.TEXT, stream)
    for error in (LineTooLong(b"x" * 10_000, 8190), ValueError("ours")):
        log.error("Error handling request", exc_info=error)
    assert stream.getvalue().count("Error handling") == 1
    assert "ours" in stream.getvalue()
