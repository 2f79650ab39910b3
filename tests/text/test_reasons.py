"""All reasons: each has its code, its text and its entry, and texts name only what exists."""

from __future__ import annotations

import re
import typing
from dataclasses import is_dataclass
from inspect import get_annotations, isclass
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

import pytest

from koord.answers.conditions import list_conditions
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import REASONS, Reason
from koord.core.model.templates import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENTED = {(one.name, one.helps) for one in list_conditions() if one.means}
OURS = {code: cls for code, cls in REASONS.items() if cls.__module__.startswith("koord.")}


def fields_in(template: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a template and its parts, and how each is written."""
    for _, path, spec, _ in Formatter().parse(template):
        if path is not None:
            yield path, spec or ""
            if not (spec or "").startswith("list"):
                yield from fields_in(spec or "")


def unknown_in(template: str, cls: type[Any]) -> list[str]:
    """Return the fields that are neither fields nor properties of a class."""
    return [
        path
        for path, _ in fields_in(template)
        if not hasattr(cls, path.removesuffix("()").partition(".")[0])
    ]


def unknown_in_items(template: str, cls: type[Any]) -> list[str]:
    """Return what the templates for items of lists name that the items do not have."""
    return [
        inner
        for path, spec in fields_in(template)
        if spec.startswith("list") and path in get_annotations(cls)
        for inner, _ in fields_in(spec.partition(" ")[2])
        for item in typing.get_args(typing.get_type_hints(cls)[path])[:1]
        if not has(item, inner.removesuffix("()"))
    ]


def has(item: Any, inner: str) -> bool:
    if not inner:
        return True
    if inner.isdecimal():
        return int(inner) < len(typing.get_args(item))
    return isclass(item) and hasattr(item, inner)


def templates_of(cls: type[Reason]) -> Iterator[str]:
    """Yield the templates of a class, and those that are a part of them."""
    for template in (cls.says, cls.quotes, *cls.advises):
        yield template
        yield from parts_of(template, cls)


def parts_of(template: str, cls: type[Reason]) -> Iterator[str]:
    for path, spec in fields_in(template):
        if spec == "part":
            part = getattr(cls, path)
            assert isinstance(part, str), "what values bring is never read as a template"
            yield part
            yield from parts_of(part, cls)


def test_the_check_finds_fields_that_do_not_exist() -> None:
    class Example(Reason):
        node = ""
        pairs: tuple[tuple[str, int], ...] = ()

    assert unknown_in("{node:?{nods}|{pairs.real}}", Example) == ["nods"]
    assert unknown_in_items("{pairs:list {0} {2}}", Example) == ["2"]


@pytest.mark.parametrize("cls", OURS.values(), ids=OURS)
def test_every_field_that_a_text_names_exists(cls: type[Reason]) -> None:
    assert cls.says
    for template in templates_of(cls):
        assert unknown_in(template, cls) == []
        assert unknown_in_items(template, cls) == []
        named = {spec for _, spec in fields_in(template) if spec.isalpha()}
        assert named <= {"list", "part", *FORMATS}


@pytest.mark.parametrize("cls", OURS.values(), ids=OURS)
def test_every_reason_is_a_value_with_an_entry_of_the_reference(cls: type[Reason]) -> None:
    assert is_dataclass(cls)
    assert cls.__dataclass_params__.frozen
    assert "__slots__" in cls.__dict__
    assert (cls.code, cls.way_out) in DOCUMENTED


STATES = {"AllBound", "AtStrength", "Reached", "Started", "Valid", "WithinTime"}
"""Reasons of conditions that are fine: nothing waits for them."""


def test_every_reason_has_one_class() -> None:
    without = {code for code, reason in OURS.items() if reason.reason_class is None}
    assert without == STATES


def test_the_page_lists_every_class() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explain-json.md").read_text()
    rows = page.partition("## Classes of reasons")[2].partition("\nThe answer")[0]
    assert re.findall(r"^\| `(\w+)`", rows, re.MULTILINE) == [str(each) for each in ReasonClass]
