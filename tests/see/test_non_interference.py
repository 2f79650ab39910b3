"""Who may list pods of one namespace only learns no name of others, from no route.

Two clusters that differ in the names of others alone, in the same order, give equal answers.
"""

import json

import pytest
from hypothesis import given, settings
from tests.cli.test_redaction import NAMES_OF_GANGS, make_scene
from tests.support.laws import examples

from koord.answers.encoding import encode
from koord.answers.reading import Target, TargetKind
from koord.answers.redaction import Sight
from koord.see.route import Ask, NothingThere, Route, head_for, wrap
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot

HERE = Target(TargetKind.POD, "team-a", "")
OWN = {"namespace": "team-a", "kind": "pod", "name": "mine"}
PARTS = {"Quota": {"name": "all"}, "Node": {"name": "n1"}, "Devices": {"name": "n1"}}
BODIES = {
    "Room": {"shape": "2x8"},
    "WhatIf": {"edits": [{"drain": {"nodes": ["n1"]}}]},
}
SIGHTS = [Sight(frozenset({"team-a"})), Sight(frozenset({"team-a"}), quotas=False)]


def ask(route: Route, others: dict[str, str], gpus: int, sight: Sight) -> str:
    snapshot = Snapshot(make_scene(others, gpus, sight), HERE, 1, 1.0)
    names = PARTS.get(route.answer, OWN)
    question = Ask(
        {k: v for k, v in names.items() if f"{{{k}}}" in route.path}, BODIES.get(route.answer, {})
    )
    try:
        answer = route.answer_from(snapshot, question)
    except NothingThere as refusal:
        return str(refusal)
    document = wrap(head_for(route, snapshot, question, "i", 1.0), answer)
    return json.dumps(encode(document))


@pytest.mark.parametrize("sight", SIGHTS, ids=["with quotas", "pods only"])
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.answer)
@settings(max_examples=examples(3), deadline=None)
@given(names=NAMES_OF_GANGS)
def test_names_of_others_change_no_answer(route, sight, names):
    others = {name: f"secret-{name}" for name in sorted(names)}
    renamed = {f"w{name}": f"secret-w{name}" for name in sorted(names)}
    told = ask(route, others, 8, sight)
    assert told == ask(route, renamed, 8, sight)
    assert "secret" not in told
