"""Texts of profiles cannot become part of a program."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.profiles.make import CLASSES, EXCLUDED, NASTY, PROFILES

from koord.core.profiles.cel import escape_pointer, join_all, join_any, write_json, write_text
from koord.core.profiles.generate import generate

ESCAPE = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
LITERAL = re.compile(r'"(?:[^"\\]|\\u[0-9a-f]{4}|\\U[0-9a-f]{8})*"')


def read_text(literal):
    """Read a literal as CEL does."""
    assert LITERAL.fullmatch(literal), literal
    return ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)), literal[1:-1])


@given(NASTY | st.text(st.characters(codec="utf-8")))
def test_literal_is_the_text_and_nothing_else(text):
    literal = write_text(text)
    assert literal.isascii()
    assert literal.isprintable()
    assert read_text(literal) == text


def test_half_of_a_pair_is_refused():
    with pytest.raises(ValueError, match="surrogate"):
        write_text("a\ud800")


def test_json_is_dynamic_in_maps_and_lists():
    assert write_json({"a": [1, "x", True]}) == '{"a": dyn([dyn(1), dyn("x"), dyn(true)])}'


def test_conditions():
    assert join_all(["true", "a", "true", "b"]) == "a && b"
    assert join_all([]) == "true"
    assert join_any(["a", "true"]) == "true"
    assert join_any([]) == "false"


@given(st.text(st.characters(codec="utf-8")))
def test_pointer(text):
    assert escape_pointer(text).replace("~1", "/").replace("~0", "~") == text


@given(PROFILES)
def test_programs_have_no_text_outside_of_literals(profiles):
    """Without its literals a program has names and operators only, whatever profiles say."""
    for policy in generate(profiles, CLASSES, EXCLUDED).policies:
        spec = json.loads(json.dumps(policy.spec))
        texts = [variable["expression"] for variable in spec["variables"]]
        texts += [mutation["jsonPatch"]["expression"] for mutation in spec["mutations"]]
        for text in texts:
            bare = LITERAL.sub('""', text)
            assert re.fullmatch(r'[A-Za-z0-9_\s.,:?!(){}\[\]+*<>=&|\-"]*', bare), bare
            assert bare.count('"') % 2 == 0
