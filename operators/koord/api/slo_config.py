"""One key of the ConfigMap ``slo-controller-config``: JSON text to a model, or its problems.

The form is Koordinator's. Which keys there are, each domain says; what is in force while a text is
invalid is decided by who keeps the earlier one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final, Generic, TypeVar

from pydantic import TypeAdapter

from koord.api.json_text import load_json
from koord.api.model import Model
from koord.api.parse import InvalidObject, Problem, cut, parse_value

NAMESPACE: Final = "koordinator-system"
NAME: Final = "slo-controller-config"

M = TypeVar("M", bound=Model)


def _find_nothing(_: Any) -> Iterable[Problem]:
    return ()


@dataclass(frozen=True, slots=True)
class SloConfigKey(Generic[M]):
    """A key, the model of its value, and what becomes of it in the core.

    ``make`` returns the settings that domains look up by their class ``of``. ``find_problems``
    yields what is wrong with parts of a valid value together, fields relative to the key.
    """

    name: str
    model: type[M]
    of: type
    make: Callable[[M], object] = field(repr=False)
    find_problems: Callable[[M], Iterable[Problem]] = field(default=_find_nothing, repr=False)

    def read(self, text: str) -> M | InvalidObject:
        """Return what a text says, or its problems; each begins with the key."""
        try:
            written = load_json(text)
        except (ValueError, RecursionError) as error:
            return InvalidObject((Problem(self.name, cut(text), f"is not JSON: {error}"),))
        value = parse_value(TypeAdapter(self.model), written)
        if isinstance(value, InvalidObject):
            return InvalidObject(tuple(map(self._locate, value.problems)))
        problems = tuple(map(self._locate, self.find_problems(value)))
        return InvalidObject(problems) if problems else value

    def find_unknown(self, text: str) -> tuple[Problem, ...]:
        """Return the fields of a valid text that nothing reads, and what may be meant."""
        strict = parse_value(TypeAdapter(self.model), load_json(text), unknown_fields="forbid")
        return tuple(
            map(self._locate, strict.problems if isinstance(strict, InvalidObject) else ())
        )

    def _locate(self, problem: Problem) -> Problem:
        return replace(problem, field=".".join(filter(None, (self.name, problem.field))))


def find_misspelled(
    written: Iterable[str], keys: Iterable[SloConfigKey[Any]]
) -> Iterator[tuple[str, Problem]]:
    """Yield keys of the ConfigMap that are almost one of these, each with its problem.

    Others are left alone: Koordinator lets everybody add some.
    """
    names = [key.name for key in keys]
    for name in sorted(set(written) - set(names)):
        close = get_close_matches(name, names, n=1, cutoff=0.8)
        if close:
            yield name, Problem(cut(name), "", f"is not a key here; did you mean {close[0]}?")
