"""What an asker may not see is not there: for her it makes no difference whether it exists."""

from __future__ import annotations

import pytest
from tests.cli.test_redaction import make_scene
from tests.see.test_app import make_record

from koord.answers.happenings import SeenObjects
from koord.answers.reading import Target, TargetKind
from koord.answers.redaction import Sight
from koord.answers.story import make_story
from koord.see.route import Ask, NothingThere
from koord.see.routes import ROUTES
from koord.see.snapshots import OnDemand, Snapshot

HERE = Target(TargetKind.POD, "team-a", "")
ONLY_A = Sight(frozenset({"team-a"}))
OTHERS = {"x": "team-x"}


def refuse(answer: str, kind: str, name: str, namespace: str = "team-x") -> str:
    def tell(subject):
        story = make_story(subject, [make_record("team-x/x", 1, "Running")], SeenObjects(), 0)
        return story, ()

    source = OnDemand(tell, lambda: ((), ()), None)
    snapshot = Snapshot(make_scene(OTHERS, 8, ONLY_A), HERE, 1, 1.0, source)
    route = next(route for route in ROUTES if route.answer == answer)
    question = Ask({"namespace": namespace, "kind": kind, "name": name})
    with pytest.raises(NothingThere) as refusal:
        route.answer_from(snapshot, question)
    return str(refusal.value)


@pytest.mark.parametrize("answer", ["Explanation", "Remedies", "Story"])
@pytest.mark.parametrize(("kind", "there"), [("pod", "x-0"), ("podgroup", "x")])
def test_an_object_of_others_is_refused_as_one_that_does_not_exist(answer, kind, there):
    told = refuse(answer, kind, there)
    title = {"pod": "Pod", "podgroup": "PodGroup"}[kind]
    assert told == f"there is no {title} {there} in namespace team-x, or you may not see it"
    assert refuse(answer, kind, "none").replace("none", there) == told


def test_of_what_does_not_exist_no_names_of_others_are_suggested():
    told = refuse("Explanation", "pod", "x-0", "team-a")
    assert told == "there is no Pod x-0 in namespace team-a"
