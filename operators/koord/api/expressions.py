"""Expressions over API objects: JMESPath with a few functions for numbers and maps.

They stand in data files and in the configuration, never in objects of tenants; the objects that
they are evaluated on are, so what comes out may be anything, and every failure is an
``ExpressionError``. Knows nothing of what is asked.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from math import prod
from typing import Any, Final, TypeVar, cast

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions, signature

from koord.api.compiled_expressions import (
    Compiler,
    EvaluationSteps,
    FunctionError,
    StepsError,
)

F = TypeVar("F", bound=Callable[..., Any])
MAX_LENGTH: Final = 4096
"""Characters of an expression."""
MAX_STEPS: Final = 10_000
"""Parts of an expression that are evaluated, each as often as a list has entries."""
MAX_QUOTED: Final = 120
"""Characters of an error of the library."""
MAX_FACTORS: Final = 64
"""Numbers that are multiplied."""
MAX_INTERVALS: Final = 4096
"""Parts of a list of indexes such as ``1,3-5,7``."""


class ExpressionError(ValueError):
    """An expression cannot be read, or cannot be evaluated on an object."""


def _takes(*types: str) -> Callable[[F], F]:
    """Declare what a function takes, as the library checks it."""
    return cast("Callable[[F], F]", signature(*({"types": text.split("|")} for text in types)))


class _Functions(Functions):  # type: ignore[misc]
    """What JMESPath lacks; nulls count as not there."""

    @_takes("object|null")
    def _func_entries(self, value: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """Return the entries of a map, each with ``key`` and ``value``, in the order written."""
        return [{"key": key, "value": entry} for key, entry in (value or {}).items()]

    @_takes("string")
    def _func_lower(self, text: str) -> str:
        return text.lower()

    @_takes("array")
    def _func_product(self, factors: list[Any]) -> int | float:
        if len(factors) > MAX_FACTORS:
            raise ExpressionError(f"multiplies more than {MAX_FACTORS} numbers")
        return prod(_numbers(factors))

    @_takes("number", "number")
    def _func_subtract(self, left: int, right: int) -> int:
        return left - right

    @_takes("number", "number|null", "number|null")
    def _func_clamp(self, value: int, least: int | None, most: int | None) -> int:
        """Return a number within bounds, of which the lower one is stronger."""
        value = value if most is None else min(value, most)
        return value if least is None else max(value, least)

    @_takes("array")
    def _func_smallest(self, numbers: list[Any]) -> int | float | None:
        """Return the smallest number of those that are there."""
        return min(_numbers(numbers), default=None)

    @_takes("array")
    def _func_largest(self, numbers: list[Any]) -> int | float | None:
        """Return the largest number of those that are there."""
        return max(_numbers(numbers), default=None)

    @_takes("string|null")
    def _func_count_indexes(self, text: str | None) -> int:
        """Count the indexes of a list such as ``1,3-5,7``; 0 for one that makes no sense."""
        parts = (text or "").split(",", MAX_INTERVALS)[:MAX_INTERVALS]
        return reduce(lambda count, part: count + _count_interval(part), parts, 0)


def _numbers(values: list[Any]) -> list[int | float]:
    present = [value for value in values if value is not None]
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in present):
        raise ExpressionError("is about something that is no number")
    return present


def _count_interval(part: str) -> int:
    first, dash, last = part.strip().partition("-")
    ends = (first, last) if dash else (first, first)
    if not all(end.isascii() and end.isdecimal() and len(end) < 10 for end in ends):
        return 0
    return max(0, int(ends[1]) - int(ends[0]) + 1)


FUNCTIONS: Final = _Functions()
_COMPILER: Final = Compiler(FUNCTIONS)


class Expression:
    """One expression, read once."""

    __slots__ = ("_part", "text")

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"is longer than {MAX_LENGTH} characters")
        self.text = text
        try:
            self._part = _COMPILER.compile(jmespath.compile(text).parsed)
        except (JMESPathError, RecursionError, FunctionError) as error:
            raise ExpressionError(f"is no JMESPath expression: {_first_line(error)}") from error

    def evaluate(self, document: Any) -> Any:
        """Return what the expression says of a document. Raises ``ExpressionError``."""
        steps = EvaluationSteps(MAX_STEPS)
        try:
            steps.spend(self._part.steps)
            return self._part.evaluate(document, steps)
        except StepsError:
            raise ExpressionError(
                f"takes more than {MAX_STEPS} steps: a list or map is too long"
            ) from None
        except ExpressionError:
            raise
        except Exception as error:  # the library raises what its functions meet
            raise ExpressionError(f"cannot be evaluated: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    """Return what an error says; it may quote what a tenant wrote."""
    text = str(error)[: MAX_QUOTED + 1].partition("\n")[0] or type(error).__name__
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"
