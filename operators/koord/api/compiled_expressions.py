"""JMESPath expressions as functions, made once of what the library has parsed.

The library's interpreter finds a method by name for each part of an expression, each time.
Thousands of owners are read when an operator starts, so the parts become functions that call each
other. What they say is what the library says; its functions are called as they are.

A part counts as one step each time it is evaluated: lists in objects of tenants may be of any
length. Knows nothing of what is asked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from jmespath.functions import Functions
from jmespath.visitor import TreeInterpreter

Evaluate: TypeAlias = "Callable[[Any, EvaluationSteps], Any]"
Node: TypeAlias = Mapping[str, Any]
"""A part of an expression as the library parses it: its type, its value and its children."""


_PROJECTIONS: Final = frozenset({"projection", "value_projection", "filter_projection"})


class StepsError(Exception):
    """The evaluation takes more steps than there are."""


@dataclass(slots=True)
class EvaluationSteps:
    """How many steps of one evaluation are left."""

    left: int

    def spend(self, count: int) -> None:
        """Count steps before they are taken. Raises ``StepsError``."""
        self.left -= count
        if self.left < 0:
            raise StepsError


class Part(NamedTuple):
    """A part that can be evaluated, and how many steps that takes without entries of lists."""

    evaluate: Evaluate
    steps: int


class FunctionError(ValueError):
    """An expression calls a function that does not exist."""


class Compiler:
    """Compiles expressions that may call the functions of a class."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._makers: Mapping[str, Callable[[Node], Evaluate]] = {
            "and_expression": self._make_and,
            "comparator": self._make_comparator,
            "current": _make_identity,
            "expref": self._make_reference,
            "field": _make_field,
            "filter_projection": self._make_filter,
            "flatten": self._make_flatten,
            "function_expression": self._make_call,
            "identity": _make_identity,
            "index": _make_index,
            "index_expression": self._make_chain,
            "key_val_pair": self._make_chain,
            "literal": _make_literal,
            "multi_select_dict": self._make_dict,
            "multi_select_list": self._make_list,
            "not_expression": self._make_not,
            "or_expression": self._make_or,
            "pipe": self._make_chain,
            "projection": self._make_projection,
            "slice": _make_slice,
            "subexpression": self._make_chain,
            "value_projection": self._make_value_projection,
        }

    def compile(self, node: Node) -> Part:
        """Return a parsed expression as a function. Raises ``FunctionError``."""
        return Part(self._make(node), _count(node))

    def _make(self, node: Node) -> Evaluate:
        return self._makers[node["type"]](node)

    def _make_all(self, node: Node) -> list[Evaluate]:
        return [self._make(child) for child in node["children"]]

    def _make_chain(self, node: Node) -> Evaluate:
        names = _find_path(node)
        if names:
            return _make_path(names)
        parts = self._make_all(node)

        def evaluate(value: Any, steps: EvaluationSteps) -> Any:
            for part in parts:
                value = part(value, steps)
            return value

        return evaluate

    def _make_and(self, node: Node) -> Evaluate:
        left, right = self._make_all(node)

        def evaluate(value: Any, steps: EvaluationSteps) -> Any:
            result = left(value, steps)
            return result if is_false(result) else right(value, steps)

        return evaluate

    def _make_or(self, node: Node) -> Evaluate:
        left, right = self._make_all(node)

        def evaluate(value: Any, steps: EvaluationSteps) -> Any:
            result = left(value, steps)
            return right(value, steps) if is_false(result) else result

        return evaluate

    def _make_not(self, node: Node) -> Evaluate:
        (part,) = self._make_all(node)

        def evaluate(value: Any, steps: EvaluationSteps) -> bool:
            result = part(value, steps)
            # As the library has it: a number is true, also 0.
            return not result and not _is_number(result)

        return evaluate

    def _make_comparator(self, node: Node) -> Evaluate:
        left, right = self._make_all(node)
        compare = TreeInterpreter.COMPARATOR_FUNC[node["value"]]
        is_ordering = node["value"] not in {"eq", "ne"}

        def evaluate(value: Any, steps: EvaluationSteps) -> Any:
            first, second = left(value, steps), right(value, steps)
            if is_ordering and not (_is_ordered(first) and _is_ordered(second)):
                return None
            return compare(first, second)

        return evaluate

    def _make_call(self, node: Node) -> Evaluate:
        name, parts = node["value"], self._make_all(node)
        if name not in self._functions.FUNCTION_TABLE:
            raise FunctionError(f"Unknown function: {name}()")
        call = self._functions.call_function

        def evaluate(value: Any, steps: EvaluationSteps) -> Any:
            return call(name, [part(value, steps) for part in parts])

        return evaluate

    def _make_reference(self, node: Node) -> Evaluate:
        part = self.compile(node["children"][0])
        return lambda _value, steps: _ExpressionArgument(part, steps)

    def _make_flatten(self, node: Node) -> Evaluate:
        (part,) = self._make_all(node)

        def evaluate(value: Any, steps: EvaluationSteps) -> list[Any] | None:
            entries = part(value, steps)
            if not isinstance(entries, list):
                return None
            merged: list[Any] = []
            for entry in entries:
                if isinstance(entry, list):
                    merged += entry
                else:
                    merged.append(entry)
            return merged

        return evaluate

    def _make_projection(self, node: Node) -> Evaluate:
        base, of_each = self._make(node["children"][0]), self.compile(node["children"][1])

        def evaluate(value: Any, steps: EvaluationSteps) -> list[Any] | None:
            entries = base(value, steps)
            return _project(entries, of_each, steps) if isinstance(entries, list) else None

        return evaluate

    def _make_value_projection(self, node: Node) -> Evaluate:
        base, of_each = self._make(node["children"][0]), self.compile(node["children"][1])

        def evaluate(value: Any, steps: EvaluationSteps) -> list[Any] | None:
            entries = base(value, steps)
            if not isinstance(entries, dict):
                return None
            return _project(list(entries.values()), of_each, steps)

        return evaluate

    def _make_filter(self, node: Node) -> Evaluate:
        base, of_each = self._make(node["children"][0]), self.compile(node["children"][1])
        condition = self.compile(node["children"][2])

        def evaluate(value: Any, steps: EvaluationSteps) -> list[Any] | None:
            entries = base(value, steps)
            if not isinstance(entries, list):
                return None
            steps.spend(len(entries) * condition.steps)
            kept = [e for e in entries if not is_false(condition.evaluate(e, steps))]
            return _project(kept, of_each, steps)

        return evaluate

    def _make_dict(self, node: Node) -> Evaluate:
        parts = [(child["value"], self._make(child)) for child in node["children"]]

        def evaluate(value: Any, steps: EvaluationSteps) -> dict[str, Any] | None:
            if value is None:
                return None
            return {name: part(value, steps) for name, part in parts}

        return evaluate

    def _make_list(self, node: Node) -> Evaluate:
        parts = self._make_all(node)

        def evaluate(value: Any, steps: EvaluationSteps) -> list[Any] | None:
            return None if value is None else [part(value, steps) for part in parts]

        return evaluate


class _ExpressionArgument:
    """What the library's functions take for ``&expression``; they know it by the class's name."""

    def __init__(self, expression: Part, steps: EvaluationSteps) -> None:
        self.expression = expression
        self._steps = steps

    def visit(self, part: Part, value: Any) -> Any:
        self._steps.spend(part.steps)
        return part.evaluate(value, self._steps)


_ExpressionArgument.__name__ = "_Expression"


def _project(entries: list[Any], of_each: Part, steps: EvaluationSteps) -> list[Any]:
    steps.spend(len(entries) * of_each.steps)
    result = (of_each.evaluate(entry, steps) for entry in entries)
    return [each for each in result if each is not None]


def _count(node: Node) -> int:
    """Return how many steps a part takes; those of entries of lists are counted for each entry."""
    kind, children = node["type"], node["children"]
    if kind in {"slice", "expref"}:
        return 1
    return 1 + sum(map(_count, children[:1] if kind in _PROJECTIONS else children))


def _find_path(node: Node) -> tuple[str, ...]:
    """Return the names of a chain of fields; empty if it is none."""
    if node["type"] == "field":
        return (node["value"],)
    if node["type"] != "subexpression":
        return ()
    names = [_find_path(child) for child in node["children"]]
    return tuple(name for each in names for name in each) if all(names) else ()


def _make_path(names: tuple[str, ...]) -> Evaluate:
    def evaluate(value: Any, _steps: EvaluationSteps) -> Any:
        for name in names:
            if not isinstance(value, dict):
                return None
            value = value.get(name)
        return value

    return evaluate


def _make_field(node: Node) -> Evaluate:
    return _make_path((node["value"],))


def _make_identity(_node: Node) -> Evaluate:
    return lambda value, _steps: value


def _make_literal(node: Node) -> Evaluate:
    literal = node["value"]
    return lambda _value, _steps: literal


def _make_index(node: Node) -> Evaluate:
    at = node["value"]

    def evaluate(value: Any, _steps: EvaluationSteps) -> Any:
        if not isinstance(value, list) or not -len(value) <= at < len(value):
            return None
        return value[at]

    return evaluate


def _make_slice(node: Node) -> Evaluate:
    part = slice(*node["children"])
    return lambda value, _steps: value[part] if isinstance(value, list) else None


def is_false(value: Any) -> bool:
    """Whether a value counts as false: nothing, or empty. A number does not, also 0."""
    return value is None or value is False or (isinstance(value, str | list | dict) and not value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_ordered(value: Any) -> bool:
    return _is_number(value) or isinstance(value, str)
