"""The language of templates: how a field is written, and what is chosen by it."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.core.model.templates import fill


@dataclass(frozen=True)
class Box:
    name: str = "b"
    count: int = 0
    items: tuple = ()
    inner: "Box | None" = None
    many: ClassVar = "{count:# box}"

    @property
    def is_full(self) -> bool:
        return self.count > 2

    def text(self) -> str:
        return f"box {self.name}"


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("no field", Box(), "no field"),
        ("{{name}} of {name}", Box(), "{name} of b"),
        ("{count:,}", Box(count=12345), "12,345"),
        ("{count:# pod}", Box(count=1), "1 pod"),
        ("{count:# pod}", Box(count=0), "0 pods"),
        ("{items:# pod}", Box(items=("a", "b")), "2 pods"),
        ("{count:is|are}", Box(count=1), "is"),
        ("{count:is|are}", Box(count=2), "are"),
        ("{items:|them}", Box(items=("a",)), ""),
        ("{items:?some|none}", Box(), "none"),
        ("{count:? ({count} more)}.", Box(), "."),
        ("{count:? ({count} more)}.", Box(count=2), " (2 more)."),
        ("{is_full:?{items:?{items:list}|nothing}|room}", Box(count=3), "nothing"),
        ("{is_full:?{items:?{items:list}|nothing}|room}", Box(), "room"),
        ("{inner.name}, {inner.text()}", Box(inner=Box("c")), "c, box c"),
        ("{items:list}", Box(items=tuple("abcdefghij")), "a, b, c, d, e, f, g, h, 2 more"),
        ("{items:list; {0}={1}}", Box(items=(("a", 1), ("b", 2))), "a=1; b=2"),
        ('{items:list "{}"}', Box(items=("a", "b")), '"a", "b"'),
        ("{items:list {name} ({text()})}", Box(items=(Box(), Box("c"))), "b (box b), c (box c)"),
        ("{items:names}", Box(items=tuple("abcdef")), "a, b, c, d and 2 more"),
        ("{many:part} of {name}", Box(count=1), "1 box of b"),
        ("{name:capital}", Box("wait"), "Wait"),
        ("{name:cut}", Box("x" * 300), "x" * 255 + "…"),
        ("{count:time}", Box(count=0), "1970-01-01T00:00:00Z"),
    ],
)
def test_a_template_is_filled_in(template: str, value: Box, text: str) -> None:
    assert fill(template, value) == text


@given(st.text(), st.lists(st.text()).map(tuple), st.integers(0, 9))
def test_what_a_value_says_is_never_read_as_a_template(name: str, items: tuple, count: int) -> None:
    value = Box(name, count, items)
    assert fill("{name}", value) == name
    assert fill("{count:?<{name}>|-}", value) == (f"<{name}>" if count else "-")
    assert fill("{items:names}", value).startswith(", ".join(items[:4]))
