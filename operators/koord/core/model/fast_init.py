"""Makes frozen dataclasses in a third of the time, where there is one for each pod of a cluster.

The constructor of a frozen dataclass sets every field past a ``__setattr__`` that refuses. Here the
fields are set on an object of a class with the same slots that does not refuse, which then becomes
an object of the frozen class.
"""

from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar, cast

T = TypeVar("T")


def fast_init(cls: type[T]) -> type[T]:
    """Return what makes objects of ``cls`` from the same arguments as its constructor.

    ``cls`` is a frozen dataclass with slots, without base classes, ``__post_init__``, default
    factories or fields that its constructor does not take.
    """

    def become(self: Any) -> None:
        self.__class__ = cls

    dataclass_fields = fields(cast("Any", cls))
    body: dict[str, Any] = {
        dataclass_field.name: dataclass_field.default
        for dataclass_field in dataclass_fields
        if dataclass_field.default is not MISSING
    }
    body["__annotations__"] = {
        dataclass_field.name: dataclass_field.type for dataclass_field in dataclass_fields
    }
    body["__post_init__"] = become
    return cast("type[T]", dataclass(slots=True)(type(cls.__name__, (), body)))
