"""Sends mutants the way that objects of the API server go: decoder, store, translator, state, plan.

A mutant is translated, or reported as malformed with the one error that is meant for that, or
refused as a line that is no event. Whatever else is raised is a bug: it would end a reflector, and
with it the process.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.builders import make_node
from tests.cluster import FakeCluster
from tests.fuzz.mutate import Mutator
from tests.fuzz.samples import samples_of

from koord.api.crdgen import RESOURCES as MODELS
from koord.controllers.status_author import judge
from koord.domains.registry import KINDS, make_translator_options
from koord.kube.decode import Decoder
from koord.kube.errors import Garbled, error_of_answer
from koord.kube.kind import AnyKind
from koord.kube.store import Deleted, Store

RESOURCES = {one.names.plural: one for one in MODELS}
ROUND = 40
"""Mutants that are in the state together, and planned together."""


class Reader:
    """One kind, as its reflector reads it."""

    def __init__(self, kind: AnyKind) -> None:
        self.kind = kind
        self.malformed = 0
        self._samples = [json.dumps(one) for one in samples_of(kind.plural)]
        self._translator = kind.make_translator(make_translator_options())
        self._decoder: Decoder[Any] = Decoder(kind.wire)
        self._store: Store[Any, Any] = Store(self._translator.translate, self._reject)

    def _reject(self, key: str, problem: str) -> None:
        assert isinstance(problem, str)
        self.malformed += 1

    def read(self, cluster: FakeCluster, mutator: Mutator, rng: random.Random) -> bytes:
        """Read one mutant as a watch event or on a page; return it."""
        raw = mutator.mutate(rng.choice(self._samples))
        try:
            if rng.random() < 0.5:
                kind = rng.choice(("ADDED", "ADDED", "MODIFIED", "DELETED")).encode()
                line = b'{"type":"' + kind + b'","object":' + raw.replace(b"\n", b" ") + b"}"
                items = [(kind, item) for kind, item in self._decoder.decode_lines(line)]
            else:
                good = rng.choice(self._samples).encode()
                page = b'{"metadata":{},"items":[' + raw + b"," + good + b"]}"
                items = [("ADDED", item) for item in self._decoder.decode_page(page)[1]]
        except Garbled:
            return raw
        for kind, item in items:
            remove = kind == "DELETED"
            self._apply(cluster, self._store.remove(item) if remove else self._store.upsert(item))
        return raw

    def clear(self, cluster: FakeCluster) -> None:
        """Delete all objects, as after an empty list."""
        self._apply(cluster, self._store.retain(()))

    def look_up(self, cluster: FakeCluster) -> None:
        """Ask what writers ask about the objects."""
        status_of = getattr(self._translator, "status_of", None)
        for entry in list(self._store._entries.values()):
            if status_of is not None:
                status_of(entry.uid)

    def _apply(self, cluster: FakeCluster, changes: Iterable[Any]) -> None:
        for change in changes:
            if isinstance(change, Deleted):
                self._translator.forget(change.value)
                self.kind.remove(cluster.state, change.value)
            else:
                self.kind.upsert(cluster.state, change.value)


class Fuzzer:
    """Reads mutants of all kinds into a cluster, which is emptied and checked after each round."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        self._mutator = Mutator(self._rng)
        self._readers = [Reader(kind) for kind in KINDS]
        self.seen: Counter[str] = Counter()
        self.last = b""
        """The mutant that was read last."""

    def run(self, inputs: int) -> None:
        for at in range(0, inputs, ROUND):
            self._play_round(min(ROUND, inputs - at))

    def _play_round(self, inputs: int) -> None:
        cluster = FakeCluster().nodes(make_node("n0").gpu(8), make_node("n1").label("zone", "a"))
        for _ in range(inputs):
            # Pods have by far the most fields, and anyone may write them.
            reader = (
                self._readers[0] if self._rng.random() < 0.4 else self._rng.choice(self._readers)
            )
            self.seen[reader.kind.plural] += 1
            self.last = reader.read(cluster, self._mutator, self._rng)
            self._judge(reader.kind)
        cluster.step()
        for reason in cluster.reasons().values():
            reason.text()
            reason.advice()
        for reader in self._readers:
            reader.look_up(cluster)
            reader.clear(cluster)
        cluster.step()
        assert not cluster.state.pods
        assert not cluster.state.gangs.keys()

    def _judge(self, kind: AnyKind) -> None:
        """Validate as Kopf shows objects; and read the mutant as the answer to a request."""
        error_of_answer(500, self.last, None)
        try:
            body = json.loads(self.last)
        except ValueError:
            return
        resource = RESOURCES.get(kind.plural)
        if resource is not None and isinstance(body, dict):
            judge(resource, body)

    def malformed(self) -> int:
        return sum(reader.malformed for reader in self._readers)
