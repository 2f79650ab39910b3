"""Parses PromQL: the series and labels of an expression."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import promql_parser

_PARTS = ("lhs", "rhs", "expr", "param")
_INTERVAL = re.compile(r"\$__\w*interval")
"""Variables that Grafana replaces before Prometheus parses the expression."""


@dataclass(frozen=True)
class Selector:
    """One series over a time range or at an instant; label -> (operator, value)."""

    name: str
    matchers: dict[str, tuple[str, str]]
    is_range: bool


@dataclass(frozen=True)
class Query:
    selectors: list[Selector]
    grouping: set[str]
    """Labels of all ``by`` and ``without`` clauses."""


def parse_query(text: str) -> Query:
    """Parse an expression; raise ValueError with the reason if it is not PromQL."""
    tree = list(_walk(promql_parser.parse(_INTERVAL.sub("5m", text))))
    ranges = [node for node in tree if isinstance(node, promql_parser.MatrixSelector)]
    instants = [node for node in tree if isinstance(node, promql_parser.VectorSelector)]
    selectors = [
        *(_read(node.vector_selector, is_range=True) for node in ranges),
        *(_read(node, is_range=False) for node in instants),
    ]
    grouping = {
        label
        for node in tree
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier
        for label in node.modifier.labels
    }
    return Query(selectors, grouping)


def _walk(node: Any) -> Iterator[Any]:
    yield node
    children = [getattr(node, part, None) for part in _PARTS]
    for child in (*children, *getattr(node, "args", ())):
        if child is not None and type(child).__module__.startswith("promql_parser"):
            yield from _walk(child)


def _read(selector: Any, *, is_range: bool) -> Selector:
    matchers = {one.name: (str(one.op), one.value) for one in selector.matchers.matchers}
    return Selector(selector.name or "", matchers, is_range)
