"""The objects for the running process are repeatable, and of all kinds."""

import json

from tests.fuzz.objects import KINDS, ObjectMaker, known_keys

from koord.api.keys import gang, operators


def test_objects_are_repeatable_and_of_all_kinds() -> None:
    first, second = ([*ObjectMaker(7, "ns", ("n",)).make(300)] for _ in range(2))
    assert first == second
    assert {made.kind for made in first} == KINDS.keys()
    assert len({(made.path, made.name) for made in first}) == 300
    assert json.dumps([made.body for made in first], ensure_ascii=False).encode()


def test_all_keys_are_tried() -> None:
    assert {gang.NAME, gang.GROUPS, operators.SUB_GROUPS, operators.PLAN} <= set(known_keys())
