"""The policies and statuses of profiles, on a stand-in of the API server."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.profiles.make import CLASSES, make_profile

from koord.controllers import colocation_profiles
from koord.controllers.colocation_profiles import ColocationProfilePolicy
from koord.core.profiles.generate import generate
from koord.kube.admission_policies import BINDING, POLICY, PolicyWriter
from koord.kube.errors import Conflict, Forbidden, NotFound
from koord.kube.translate.profiles import ColocationProfileTranslator
from koord.kube.wire import WireCustomResource

POLICIES, BINDINGS = POLICY[1], BINDING[1]


class StandInServer:
    """Keeps the metadata of what is applied."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.bodies: dict[tuple[str, str], Any] = {}
        self.writes: list[str] = []
        self.error: Exception | None = None
        self.write_error: Exception | None = None
        self.is_same = False
        """Whether what is written again is what is there."""

    async def list(self, path, params, *, is_metadata_only):
        assert is_metadata_only
        assert params["labelSelector"].startswith("app.kubernetes.io/managed-by=")
        if self.error is not None:
            raise self.error
        plural = path.rpartition("/")[2]
        items = [{"metadata": meta} for key, meta in self.objects.items() if key[0] == plural]
        return msgspec.json.encode({"items": items})

    async def patch(self, path, body, media, params):
        if self.write_error is not None:
            raise self.write_error
        *_, plural, name = path.split("/")
        before = self.objects.get((plural, name), {"generation": 0})
        assert params["force"] == ("true" if (plural, name) in self.objects else "false")
        generation = before["generation"] + (not self.is_same)
        meta = {"name": name, "uid": f"uid-{name}", "generation": generation}
        self.objects[plural, name], self.bodies[plural, name] = meta, body
        self.writes.append(f"{plural}/{name}")
        return msgspec.json.encode({"metadata": meta})

    async def delete(self, path, *, uid):
        *_, plural, name = path.split("/")
        assert self.objects.pop((plural, name))["uid"] == uid
        self.writes.append(f"-{plural}/{name}")


class StandInAuthor:
    """Keeps the conditions of profiles."""

    def __init__(self) -> None:
        self.said: dict[str, dict[str, Any]] = {}
        self.fields: dict[str, Any] = {}

    def write_status(self, profile, fields, conditions):
        self.fields[profile.name] = fields
        self.said[profile.name] = {condition.type: condition for condition in conditions}

    def reason(self, name: str) -> str:
        return self.said[name]["Published"].reason


class Scene:
    def __init__(self, *profiles, is_enabled: bool = True) -> None:
        self.server, self.author, self.now = StandInServer(), StandInAuthor(), 100.0
        self.profiles = {profile.name: profile for profile in profiles}
        self.classes = dict(CLASSES)
        writer: Any = PolicyWriter(self.server)
        self.policy = ColocationProfilePolicy(
            lambda: self.profiles,
            lambda: self.classes,
            writer,
            self.author,
            is_enabled,
            lambda: ("kube-system", "koord-system"),
            lambda: self.now,
        )

    def round(self) -> list[float | None]:
        async def run() -> list[float | None]:
            return [await self.policy.update(name) for name in self.policy.changed()]

        return asyncio.run(run())

    def settle(self) -> None:
        """Let the API server follow all policies."""
        self.now += colocation_profiles.SETTLED_SECONDS
        for name in self.profiles:
            self.update(name)

    def update(self, name: str) -> float | None:
        return asyncio.run(self.policy.update(name))


def test_it_is_published_when_the_api_server_follows_the_policy():
    """Pods that are made as soon as the condition is true are changed."""
    scene = Scene(make_profile("a", labels={"x": "y"}), make_profile("b", priorityClassName="gone"))
    scene.round()
    later = scene.update("a")
    assert scene.author.said.keys() == {"b"}, "nothing is wrong with a, and it is not in force"
    assert later == colocation_profiles.SETTLED_SECONDS
    scene.now += later - 1.0
    assert scene.update("a") == pytest.approx(1.0)
    assert "a" not in scene.author.said
    scene.now += 1.0
    scene.update("a")
    assert scene.author.reason("a") == "Published"
    first = scene.author.said["a"]["Published"].observed_generation
    scene.profiles["a"] = replace(make_profile("a", labels={"x": "z"}), generation=2)
    scene.round()
    published = scene.author.said["a"]["Published"]
    assert published.observed_generation == first, "the edit is not in force yet"
    scene.settle()
    assert scene.author.said["a"]["Published"].observed_generation == 2


def test_a_restart_says_nothing_else():
    scene = Scene(make_profile("a", labels={"x": "y"}))
    scene.round()
    again = Scene(*scene.profiles.values())
    again.server.objects, again.now = scene.server.objects, scene.now
    again.server.is_same = True
    again.round()
    assert again.author.reason("a") == "Published"


def test_policy_and_binding_are_written_once_and_taken_back():
    here = {"matchLabels": {"kubernetes.io/metadata.name": "x"}}
    first = make_profile("a", labels={"x": "y"}, namespaceSelector=here)
    scene = Scene(first, make_profile("b", priorityClassName="gone"))
    scene.round()
    assert scene.server.writes == [f"{POLICIES}/koord-profile-a", f"{BINDINGS}/koord-profile-a"]
    scene.settle()
    assert scene.author.reason("a") == "Published"
    assert scene.author.fields["a"]["policy"] == "koord-profile-a"
    assert scene.author.reason("b") == "PriorityClassMissing"
    scene.server.writes.clear()
    assert scene.round() == []
    scene.now += 100.0
    scene.update("a")
    assert scene.server.writes == []
    del scene.profiles["a"]
    scene.round()
    assert scene.server.writes == [f"-{BINDINGS}/koord-profile-a", f"-{POLICIES}/koord-profile-a"]


def test_policy_goes_with_its_last_profile_also_without_us():
    scene = Scene(make_profile("a", labels={"x": "y"}))
    scene.round()
    body = scene.server.bodies[POLICIES, "koord-profile-a"]
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == (
        "ClusterColocationProfile",
        "a",
        "uid-a",
    )


def test_change_by_somebody_else_is_reverted():
    scene = Scene(make_profile("a", labels={"x": "y"}))
    scene.round()
    scene.server.objects[POLICIES, "koord-profile-a"]["generation"] = 7
    del scene.server.objects[BINDINGS, "koord-profile-a"]
    scene.server.writes.clear()
    scene.update("a")
    assert scene.server.writes == [], "not yet"
    scene.now += 30.0
    scene.update("a")
    assert scene.server.writes == [f"{POLICIES}/koord-profile-a", f"{BINDINGS}/koord-profile-a"]


def test_policies_of_an_earlier_process_are_deleted_at_the_start():
    scene = Scene()
    scene.server.objects[POLICIES, "koord-profile-old"] = {
        "name": "koord-profile-old",
        "uid": "uid-koord-profile-old",
        "generation": 1,
    }
    scene.round()
    assert scene.server.writes == [f"-{POLICIES}/koord-profile-old"]


@pytest.mark.parametrize(
    ("error", "write_error", "reason"),
    [
        (NotFound(404, "NotFound", "gone"), None, "PoliciesNotServed"),
        (Forbidden(403, "Forbidden", "no"), None, "WriteFailed"),
        (None, Forbidden(403, "Forbidden", "no"), "WriteFailed"),
        (None, Conflict(409, "Conflict", "owned by somebody"), "WriteFailed"),
    ],
)
def test_what_the_server_refuses_is_said(error, write_error, reason):
    scene = Scene(make_profile("a", labels={"x": "y"}))
    scene.server.error, scene.server.write_error = error, write_error
    (*_, again) = scene.round()
    assert scene.author.reason("a") == reason
    scene.server.error = scene.server.write_error = None
    scene.now += again
    scene.update("a")
    scene.settle()
    assert scene.author.reason("a") == "Published"


def test_switched_off_policies_are_taken_back():
    scene = Scene(make_profile("a", labels={"x": "y"}), is_enabled=False)
    scene.server.objects[BINDINGS, "koord-profile-a"] = {
        "name": "koord-profile-a",
        "uid": "uid-koord-profile-a",
        "generation": 1,
    }
    scene.round()
    assert scene.author.reason("a") == "Disabled"
    assert scene.server.writes == [f"-{BINDINGS}/koord-profile-a"]


@pytest.mark.isolates
def test_profile_that_fails_stops_no_other(monkeypatch):
    def fail(profiles, classes, excluded):
        profiles = list(profiles)
        if any(profile.name == "bad" for profile in profiles):
            raise ZeroDivisionError
        return generate(profiles, classes, excluded)

    monkeypatch.setattr(colocation_profiles, "generate", fail)
    scene = Scene(make_profile("bad", labels={"x": "y"}), make_profile("good", labels={"x": "z"}))
    scene.round()
    scene.settle()
    assert scene.author.reason("good") == "Published"
    assert scene.author.reason("bad") == "Invalid"


def test_class_that_comes_and_goes():
    scene = Scene(make_profile("a", priorityClassName="late"))
    scene.round()
    assert scene.author.reason("a") == "PriorityClassMissing"
    scene.classes["late"] = CLASSES["patient"]
    scene.round()
    scene.settle()
    assert scene.author.reason("a") == "Published"
    binding = scene.server.bodies[BINDINGS, "koord-profile-a"]
    assert binding["spec"]["paramRef"] == {"name": "late", "parameterNotFoundAction": "Allow"}
    del scene.classes["late"]
    scene.round()
    assert scene.author.reason("a") == "PriorityClassMissing"
    assert scene.server.objects == {}


def test_last_valid_settings_stay():
    scene = Scene(make_profile("a", labels={"x": "y"}))
    scene.round()
    scene.settle()
    kept = scene.author.fields["a"]["lastValidSpec"]
    body = {
        "metadata": {"name": "a", "uid": "uid-a", "generation": 2},
        "spec": {"labels": {"not a key": "y"}},
        "status": {"lastValidSpec": kept},
    }
    wire = msgspec.json.decode(msgspec.json.encode(body), type=WireCustomResource)
    scene.profiles["a"] = ColocationProfileTranslator().translate(wire)
    scene.server.writes.clear()
    scene.round()
    assert scene.server.writes == []
    assert scene.author.reason("a") == "Published"
    assert "the last valid settings count" in scene.author.said["a"]["Published"].message
    assert scene.author.fields["a"]["lastValidSpec"] == kept
