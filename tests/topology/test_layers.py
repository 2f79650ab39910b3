"""Lists of layers: which make one chain, and how others are explained."""

from __future__ import annotations

import pytest

from koord.core.model.topology_constraint import NODE_LAYER, ROOT_LAYER
from koord.core.topology.layers import InvalidLayers, Layer, LayerProblem, order_layers

SPINE = Layer("Spine", "", ("spine",))
BLOCK = Layer("Block", "Spine", ("block",))
NODES = Layer(NODE_LAYER, "Block")


@pytest.mark.parametrize(
    "layers",
    [
        (SPINE, BLOCK, NODES),
        (NODES, SPINE, BLOCK),
        (Layer("Spine", ROOT_LAYER, ("spine",)), NODES, BLOCK),
    ],
)
def test_layers_are_ordered_by_parents(layers: tuple[Layer, ...]) -> None:
    chain = order_layers(layers)
    assert not isinstance(chain, InvalidLayers)
    assert [layer.name for layer in chain] == ["Spine", "Block", NODE_LAYER]


def test_node_layer_alone_is_valid() -> None:
    assert order_layers((Layer(NODE_LAYER),)) == (Layer(NODE_LAYER),)


FAULTS = [
    ((), LayerProblem.EMPTY, (), "no layers are listed"),
    ((SPINE, BLOCK, BLOCK, NODES), LayerProblem.DUPLICATE, ("Block",), "twice"),
    ((Layer(ROOT_LAYER), NODES), LayerProblem.ROOT_LISTED, (ROOT_LAYER,), "built in"),
    (
        (SPINE, BLOCK),
        LayerProblem.NO_NODE_LAYER,
        (NODE_LAYER,),
        f'"{NODE_LAYER}" not found in spec',
    ),
    ((SPINE, NODES), LayerProblem.UNKNOWN_PARENT, ("Block",), 'topology layer "Block" not found'),
    (
        (Layer("Spine", "Block", ("s",)), BLOCK, NODES),
        LayerProblem.CYCLE,
        ("Block", "Spine"),
        "form a cycle",
    ),
    (
        (SPINE, BLOCK, NODES, Layer("Row", "Hall", ("r",)), Layer("Hall", "Row", ("h",))),
        LayerProblem.CYCLE,
        ("Hall", "Row"),
        "form a cycle",
    ),
    (
        (SPINE, BLOCK, NODES, Layer("Hall", "", ("h",))),
        LayerProblem.TWO_ROOTS,
        ("Hall", "Spine"),
        "only one layer can be the top",
    ),
    (
        (SPINE, BLOCK, NODES, Layer("Row", "Spine", ("r",))),
        LayerProblem.TWO_CHILDREN,
        ("Row",),
        "branch off",
    ),
    (
        (Layer("Spine"), Layer(NODE_LAYER, "Spine")),
        LayerProblem.NO_LABEL,
        ("Spine",),
        "no labelKey",
    ),
]


@pytest.mark.parametrize(("layers", "problem", "names", "text"), FAULTS)
def test_invalid_layers_are_explained(
    layers: tuple[Layer, ...], problem: LayerProblem, names: tuple[str, ...], text: str
) -> None:
    found = order_layers(layers)
    assert found == InvalidLayers(problem, names)
    assert text in found.describe()
