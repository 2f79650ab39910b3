"""The cache of a kind with malformed objects."""

import pytest

from koord.kube.decode import Poison
from koord.kube.store import Added, Deleted, Store
from koord.kube.wire import Identity, WireNode, WireObjectMeta


def node(uid: str, revision: str, label: str = "") -> WireNode:
    labels = {"label": label}
    return WireNode(WireObjectMeta(name="n", uid=uid, resource_version=revision, labels=labels))


def translate(wire: WireNode) -> str:
    if (wire.metadata.labels or {})["label"] == "poison":
        raise ValueError("poisoned")
    return wire.metadata.uid


def unreadable(uid: str, revision: str) -> Poison:
    return Poison(Identity(name="n", uid=uid, resource_version=revision), "unreadable")


@pytest.fixture
def store() -> Store[WireNode, str]:
    made: Store[WireNode, str] = Store(translate, lambda *_: None)
    assert made.upsert(node("old", "1")) == [Added("old")]
    return made


@pytest.mark.parametrize("other", [unreadable("new", "3"), node("new", "3", "poison")])
def test_malformed_recreated_object_deletes_its_predecessor(
    store: Store[WireNode, str], other: WireNode | Poison
) -> None:
    assert store.upsert(other) == [Deleted("old")]
    assert len(store) == 0
    assert store.upsert(other) == store.remove(other) == []


@pytest.mark.parametrize(
    "same", [unreadable("old", "3"), node("old", "3", "poison"), unreadable("", "")]
)
def test_malformed_update_keeps_the_last_value(
    store: Store[WireNode, str], same: WireNode | Poison
) -> None:
    assert store.upsert(same) == []
    assert store.get(("", "n")) == "old"
    assert store.remove(node("old", "4")) == [Deleted("old")]
