"""The loop in which ``koord serve`` takes in what has arrived."""

from functools import partial
from typing import Any, cast

from tests.cluster import make_cluster
from tests.isolation.plays import NAMES, Patch, is_bad, play

from koord.cli.serve_reader import QueuedReader


@play("serve")
def notes(patch: Patch) -> list[str]:
    seen: list[str] = []

    def note(_self: QueuedReader, _kind: str, item: Any, _value: Any) -> None:
        if is_bad(item):
            raise ZeroDivisionError
        seen.append(item)

    patch.setattr(QueuedReader, "_note", note)
    state = make_cluster().state
    reader = QueuedReader(cast("Any", None), (), lambda: state, cast("Any", None))
    for name in NAMES:
        reader._queue.append(partial(reader._note, "Pod", name, None))
    reader.catch_up()
    return seen
