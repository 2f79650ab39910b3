"""Reads the cluster and prints room: what ``koord room`` and ``koord fragments`` do.

Not imported for ``--help``.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from koord.answers.encoding import encode
from koord.answers.fragmentation import ModelFragmentation, view_fragmentation
from koord.answers.gaps import head_of
from koord.answers.room import RoomQuestion, ShapeRoom, find_room
from koord.cli.cluster import read_without_target, refuse_gaps
from koord.cli.common import ExitCode, Output, fail
from koord.cli.explain_view import describe_shortage
from koord.cli.output import count_of, make_table, print_in
from koord.core.defrag.shapes import MOST_GPUS, MOST_PODS, parse_shape
from koord.core.model.text import suggest
from koord.domains.placement import NODES
from koord.domains.quota import QUOTAS

_MOST_SHOWN = 8


class RoomRequest(NamedTuple):
    """What was typed."""

    shape: str
    namespace: str
    quota: str


def show_room(
    typed: RoomRequest, kubeconfig: str, context: str, output: Output, *, as_exit_code: bool
) -> None:
    shape = parse_shape(typed.shape)
    if shape is None:
        fail(
            f"{typed.shape!r} is no shape: give GPUs per pod, such as 8, or pods x GPUs, such as "
            f"4x8; at most {MOST_PODS} pods of {MOST_GPUS} GPUs",
            ExitCode.USAGE,
        )
    reading, target = read_without_target(kubeconfig, context, typed.namespace)
    refuse_gaps(reading, NODES)
    namespace = ""
    if typed.quota:
        refuse_gaps(reading, QUOTAS)
        names = reading.state.quotas.catalog.registry.specs
        if typed.quota not in names:
            meant = suggest(typed.quota, names)
            fail(f"there is no ElasticQuota {typed.quota}{meant}", ExitCode.USAGE)
        namespace = target.namespace
    room = find_room(reading.state, RoomQuestion(shape, namespace, typed.quota))
    print_in(
        output,
        head_of("Room", reading, target),
        document=lambda: encode(room),
        names=lambda: (f"node/{share.node}" for share in room.place),
        text=lambda: make_room_parts(room),
    )
    if as_exit_code and not room.place:
        raise SystemExit(ExitCode.NOT_WELL)


def make_room_parts(room: ShapeRoom) -> Iterator[RenderableType]:
    pods = count_of(int(room.shape.partition("x")[0]), "pod")
    if room.place:
        shown = ", ".join(
            f"{share.node} ({share.pods})" if share.pods > 1 else share.node
            for share in room.place[:_MOST_SHOWN]
        )
        more = ", …" if len(room.place) > _MOST_SHOWN else ""
        yield Text.assemble((room.shape, "bold"), f" fits now, on {shown}{more}.")
    else:
        yield Text.assemble(
            (room.shape, "bold"), f" does not fit now: room for {room.fit} of {pods}."
        )
    if room.reason is not None:
        yield Padding(Text(room.reason.text()), (0, 0, 0, 2))
    if room.in_quota is not None:
        yield f"Within the quota {room.in_quota} of them start together."
    yield from _describe_domains(room)
    if room.nearest:
        yield "Nearest to taking one:"
        for offer in room.nearest:
            yield Padding(Text(f"{offer.node}: {describe_shortage(offer)}"), (0, 0, 0, 2))
    if room.after_nodes:
        ways = [
            f"{count_of(more.count, 'more node')} like {more.like}" for more in room.after_nodes
        ]
        yield f"It would fit with {', or '.join(ways[:3])}."
        yield f"Whether moving pods is enough: koord defrag --plan {room.shape}"


def _describe_domains(room: ShapeRoom) -> Iterator[RenderableType]:
    if len(room.largest_gang) > 1:
        table = make_table("WITHIN ONE", "PODS THAT FIT", right=("PODS THAT FIT",))
        for largest in room.largest_gang:
            table.add_row(largest.layer, str(largest.pods))
        yield table
    if room.domains:
        table = make_table("DOMAIN", "LAYER", "TOPOLOGY", "TO SPARE", right=("TO SPARE",))
        for domain in room.domains[:_MOST_SHOWN]:
            table.add_row(domain.domain, domain.layer, domain.topology, str(domain.spare))
        yield table


def show_fragments(kubeconfig: str, context: str, output: Output) -> None:
    reading, _ = read_without_target(kubeconfig, context)
    refuse_gaps(reading, NODES)
    models = view_fragmentation(reading.state)
    print_in(
        output,
        head_of("Fragmentation", reading),
        document=lambda: {"models": encode(models)},
        names=lambda: (model.model for model in models),
        text=lambda: make_fragment_parts(models),
    )


def make_fragment_parts(models: Sequence[ModelFragmentation]) -> Iterator[RenderableType]:
    if not models:
        yield "No node has GPUs."
        return
    counts = ("GPUS", "USED", "HELD", "FREE", "STRANDED", "BROKEN", "DOWN")
    table = make_table("MODEL", "NODES", *counts, right=("NODES", *counts))
    for model in models:
        stranded = sum(model.stranded.values())
        cells = (
            model.nodes, model.total, model.used, model.held, model.free, stranded,
            model.broken, model.down,
        )  # fmt: skip
        table.add_row(model.model, *map(str, cells))
    yield table
    sizes = ("GPUS PER POD", "PODS THAT FIT", "IF TOGETHER", "GPUS LOST")
    losses = make_table("MODEL", *sizes, right=sizes)
    for model in models:
        for loss in model.sizes if model.free else ():
            numbers = (loss.size, loss.placeable, loss.ideal, loss.lost)
            losses.add_row(model.model, *map(str, numbers))
    yield losses
    for model in models:
        if model.stranded:
            causes = ", ".join(f"{count} for {cause}" for cause, count in model.stranded.items())
            yield f"{model.model}: free GPUs that no pod can take: {causes}."
