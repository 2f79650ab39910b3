"""What ``fast_init`` makes is what the constructor makes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest

from koord.core.model.pod_charge import Load, PodCharge
from koord.core.model.pods import NO_LABELS, Pod, PodShape, fast_init

SHAPE = PodShape(())


@dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: int = 2


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (Pair, {"left": 1}),
        (Pair, {"left": 1, "right": 3}),
        (Pod, {"uid": "u", "namespace": "n", "name": "p", "shape": SHAPE, "priority": 3}),
        (Load, {"node": "n", "requests": (), "host_ports": ()}),
        (
            PodCharge,
            {
                "uid": "u",
                "load": Load("n", (), ()),
                "profile": NO_LABELS,
                "constraints": None,
                "claims": (),
                "is_terminating": False,
                "shape": SHAPE,
            },
        ),
    ],
)
def test_it_makes_what_the_constructor_makes(kind: type[Any], given: dict[str, Any]) -> None:
    fast, made = fast_init(kind)(**given), kind(**given)
    assert type(fast) is kind
    assert (fast, hash(fast), repr(fast)) == (made, hash(made), repr(made))
    assert replace(fast) == made
    with pytest.raises(FrozenInstanceError):
        setattr(fast, next(iter(given)), 0)


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="left"):
        fast_init(Pair)(right=1)  # type: ignore[call-arg]
