"""Kinds of objects that own pods, as data: where their pod templates are, and how gangs are read.

``kinds/*.toml`` has those that are known, one file per framework; a site adds its own in the
configuration, in the same form. Expressions are JMESPath, evaluated on ``metadata`` (labels and
annotations), ``spec`` and ``status`` of the object. What they say of an object that a tenant wrote
is checked here: whole numbers within bounds, or a problem with field and value.

Knows neither clusters nor planning.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from koord.api.expressions import Expression, ExpressionError
from koord.api.model import Documented

MAX_NUMBER: Final = 2**31 - 1
MAX_ROLES: Final = 64
MAX_NAME: Final = 253
MAX_KEY: Final = 317
"""Characters of the key of a label."""
_MAX_SHOWN: Final = 80
_DNS: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"


def _check_expression(text: str) -> str:
    Expression(text)
    return text


Text: TypeAlias = Annotated[str, AfterValidator(_check_expression)]
"""An expression."""
LabelKeys: TypeAlias = Annotated[tuple[str, ...], Field(max_length=8)]
"""Keys of labels, of which the first counts that a pod has."""


class _KindField(Documented):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


class GangExpressions(_KindField):
    """How the gangs of an object are read; what is left out says nothing."""

    roles: Text
    """A list of `{name, size, least, inner, after}`: how many pods of a role there are at once, how
    many of them it needs (all of them), in sets of how many they are useful (1), and which roles
    must have started or ended before."""
    role_least: Text | None = None
    """A map of roles to how many pods they need; what is null in it says nothing."""
    least: Text | None = None
    """How many pods start together, of whichever role; what the roles need."""
    slots: Text | None = None
    """How many pods have to succeed in all; as many as there are at once."""
    finished: Text | None = None
    """How many of them have succeeded, or were given up; 0."""
    suspended: Text | None = None
    """Whether the object is to have no pods now."""
    elastic: Text | None = None
    """Whether it runs with fewer pods than it has, and needs its minimum all the time."""
    restarts_whole: Text | None = None
    """Whether its controller makes all pods again if one is lost."""
    separate: Text | None = None
    """Whether each role is a gang of its own."""
    in_order: Text | None = None
    """Whether each role comes after the one before it in the list."""
    held_back: Text | None = None
    """A map of roles to their pod templates: those that the controller makes only once the roles
    before them have started, and without which these are of no use. Room is held for them."""
    shared_label: Text | None = None
    """The key of a node label of which all pods of a gang need the same value."""


class OwnedPodLabels(_KindField):
    """Which labels of pods say what they are among those of their owner."""

    role: LabelKeys = ()
    role_names: Mapping[str, str] = Field(default_factory=dict, max_length=64)
    """Roles by values of that label, where they differ."""
    other_role: str | None = None
    """The role of all other values; as the label says."""
    index: LabelKeys = ()
    """The number within the role, or within its set."""
    inner: LabelKeys = ()
    """The number of the set."""
    incarnation: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """All of them together differ from one run of the object to the next."""
    group: LabelKeys = ()
    """Pods that differ in it are never of one gang."""
    by_top_pod: bool = Field(default=False, strict=True)
    """Whether only pods below the same pod are of one gang, with that pod."""


class WorkloadKind(_KindField):
    """One kind of objects that own pods."""

    group: Annotated[str, Field(max_length=MAX_NAME, pattern=_DNS)]
    """The API group, empty for that of pods."""
    version: Annotated[str, Field(max_length=63, pattern=r"^v[0-9][a-z0-9]*$")]
    """The version that is read."""
    kind: Annotated[str, Field(max_length=63, pattern=r"^[A-Z][A-Za-z0-9]*$")]
    plural: Annotated[str, Field(max_length=63, pattern=r"^[a-z][a-z0-9]*$")]
    part: Literal["claims", "passes", "ends"] = "claims"
    """Whether it says what the gangs of its pods are, stands between them and what does, or has
    nothing to say of them, as all above it."""
    reads: Literal["all", "metadata"] = "all"
    """How much of the objects is read."""
    templates: tuple[str, ...] = ()
    """Where the pod templates are; `[]` is every entry of a list, `*` every value of a map."""
    gang: GangExpressions | None = None
    """For kinds that claim."""
    pods: OwnedPodLabels = OwnedPodLabels()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class _KindFile(_KindField):
    kinds: tuple[WorkloadKind, ...]


@cache
def load_owner_kinds() -> tuple[WorkloadKind, ...]:
    """Return the kinds that are known, in the order of the files' names."""
    folder = files("koord.api").joinpath("kinds")
    kind_files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".toml")),
        key=lambda file: file.name,
    )
    documents = (tomllib.loads(file.read_text(encoding="utf-8")) for file in kind_files)
    return tuple(
        kind for document in documents for kind in _KindFile.model_validate(document).kinds
    )


def choose_owner_kinds(own: tuple[WorkloadKind, ...]) -> tuple[WorkloadKind, ...]:
    """Return all kinds, where those of a site take the place of known ones."""
    replaced = {(kind.group, kind.kind) for kind in own}
    kept = (kind for kind in load_owner_kinds() if (kind.group, kind.kind) not in replaced)
    return (*own, *kept)


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of an object that are alike."""

    name: str
    size: int
    least: int
    inner: int = 0
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GangClaim:
    """What an object says of its gangs."""

    roles: tuple[Role, ...]
    least: int | None = None
    slots: int | None = None
    finished: int = 0
    is_suspended: bool = False
    is_elastic: bool = False
    restarts_whole: bool = False
    is_separate: bool = False
    held_back: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Role, and the template of its pods."""
    shared_label: str = ""


class ClaimError(ValueError):
    """What an object says cannot be used."""

    def __init__(self, field: str, problem: str, value: object = None) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field
        self.problem = problem
        self.value = "" if value is None else _show(value)


class ClaimReader:
    """Reads the gangs of objects of one kind; its expressions are read once."""

    def __init__(self, expressions: GangExpressions) -> None:
        self._expressions: dict[str, Expression] = {
            name: Expression(text)
            for name in type(expressions).model_fields
            if (text := getattr(expressions, name)) is not None
        }

    def read(self, document: Mapping[str, Any]) -> GangClaim:
        """Return what an object says. Raises ``ClaimError``."""
        roles = self._read_roles(document)
        return GangClaim(
            roles,
            least=self._read_number("least", document),
            slots=self._read_number("slots", document),
            finished=self._read_number("finished", document) or 0,
            is_suspended=self._is_true("suspended", document),
            is_elastic=self._is_true("elastic", document),
            restarts_whole=self._is_true("restarts_whole", document),
            is_separate=self._is_true("separate", document),
            held_back=tuple(self._read_held_back(roles, document)),
            shared_label=self._read_text("shared_label", document),
        )

    def _evaluate(self, name: str, document: Mapping[str, Any]) -> Any:
        expression = self._expressions.get(name)
        if expression is None:
            return None
        try:
            return expression.evaluate(document)
        except ExpressionError as error:
            raise ClaimError(to_camel(name), str(error)) from error

    def _is_true(self, name: str, document: Mapping[str, Any]) -> bool:
        value = self._evaluate(name, document)
        # As JMESPath has it: a number is true, also 0.
        return value is not None and value is not False and value not in ("", [], {})

    def _read_number(self, name: str, document: Mapping[str, Any]) -> int | None:
        value = self._evaluate(name, document)
        return None if value is None or value is False else _read_number(to_camel(name), value)

    def _read_text(self, name: str, document: Mapping[str, Any]) -> str:
        value = self._evaluate(name, document)
        if value is None or value is False:
            return ""
        if not isinstance(value, str) or len(value) > MAX_KEY or not _is_plain(value):
            raise ClaimError(to_camel(name), f"must be text of up to {MAX_KEY} characters", value)
        return value

    def _read_held_back(
        self, roles: tuple[Role, ...], document: Mapping[str, Any]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        value = self._evaluate("held_back", document)
        if value is None or value is False:
            return
        if not isinstance(value, dict):
            raise ClaimError("heldBack", "must be a map of roles to templates", value)
        for role in roles:
            template = value.get(role.name)
            if template is None:
                continue
            if not isinstance(template, dict):
                raise ClaimError(f"heldBack.{role.name}", "must be a template of pods", template)
            yield role.name, template

    def _read_roles(self, document: Mapping[str, Any]) -> tuple[Role, ...]:
        values = self._evaluate("roles", document)
        least = self._evaluate("role_least", document)
        if not isinstance(values, list):
            raise ClaimError("roles", "are missing")
        if len(values) > MAX_ROLES:
            raise ClaimError("roles", f"are more than {MAX_ROLES}", len(values))
        named = least if isinstance(least, dict) else {}
        roles = [_read_role(at, value, named) for at, value in enumerate(values)]
        names = [role.name for role in roles]
        for at, name in enumerate(names):
            if name in names[:at]:
                raise ClaimError(f"roles[{at}].name", "is there twice", name)
        if self._is_true("in_order", document):
            roles = list(_put_in_order(roles))
        return tuple(roles)


def _put_in_order(roles: list[Role]) -> Iterator[Role]:
    before: tuple[str, ...] = ()
    for role in roles:
        yield Role(role.name, role.size, role.least, role.inner, (*role.after, *before))
        before = (role.name,)


def _read_role(at: int, value: Any, least_of: Mapping[str, Any]) -> Role:
    where = f"roles[{at}]"
    if not isinstance(value, dict):
        raise ClaimError(where, "is no map", value)
    name, after = value.get("name"), value.get("after") or []
    if not isinstance(name, str) or len(name) > MAX_NAME or not _is_plain(name):
        raise ClaimError(f"{where}.name", f"must be text of up to {MAX_NAME} characters", name)
    if not isinstance(after, list) or not all(isinstance(name, str) for name in after):
        raise ClaimError(f"{where}.after", "must be a list of names of roles", after)
    size = _read_number(f"{where}.size", value.get("size"))
    least = least_of.get(name)
    least = value.get("least") if least is None else least
    return Role(
        name,
        size,
        size if least is None else _read_number(f"{where}.least", least),
        _read_number(f"{where}.inner", value.get("inner") or 0),
        tuple(after[:MAX_ROLES]),
    )


def _read_number(field: str, value: Any) -> int:
    """Return a whole number within bounds; JSON has floats such as ``3.0``, too."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ClaimError(field, "must be a whole number", "null" if value is None else value)
    if not 0 <= value <= MAX_NUMBER:
        raise ClaimError(field, f"must be from 0 to {MAX_NUMBER}", value)
    return value


def _is_plain(text: str) -> bool:
    return not any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in text)


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
