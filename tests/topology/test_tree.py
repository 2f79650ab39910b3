"""The tree of domains, updated node by node."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koord.core.model.topology_constraint import NODE_LAYER
from koord.core.topology.cache import Topology, TopologyCache
from koord.core.topology.layers import InvalidLayers, Layer, LayerProblem, order_layers
from koord.core.topology.tree import TopologyTree, describe_domains

LAYERS = (
    Layer("Spine", "", ("spine", "old/spine")),
    Layer("Block", "Spine", ("block",)),
    Layer(NODE_LAYER, "Block"),
)


def make_tree(nodes: dict[str, dict[str, str]]) -> TopologyTree:
    chain = order_layers(LAYERS)
    assert not isinstance(chain, InvalidLayers)
    tree = TopologyTree(chain)
    for row, (name, labels) in enumerate(nodes.items()):
        tree.upsert(row, name, labels)
    return tree


def outline(tree: TopologyTree) -> list[tuple[str, str, int]]:
    return [("/".join(one.path), one.layer, one.nodes) for one in describe_domains(tree)]


def test_domains_are_identified_by_path() -> None:
    tree = make_tree({"a": {"spine": "s1", "block": "b"}, "b": {"spine": "s2", "block": "b"}})
    assert outline(tree) == [
        ("", "ClusterTopologyLayer", 2),
        ("s1", "Spine", 1),
        ("s1/b", "Block", 1),
        ("s2", "Spine", 1),
        ("s2/b", "Block", 1),
    ]


def test_first_nonempty_label_names_the_domain() -> None:
    labels = {"spine": "", "old/spine": "s9", "block": "b"}
    assert make_tree({"a": labels}).path_of_row(0) == ("s9", "b", "a")


def test_node_without_the_lowest_label_is_its_own_domain() -> None:
    assert make_tree({"a": {"spine": "s1"}}).path_of_row(0) == ("s1", "a", "a")


def test_node_without_an_upper_label_is_left_out() -> None:
    tree = make_tree({"a": {"block": "b"}, "b": {"spine": "s", "block": "b"}})
    assert tree.left_out == {"a": "Spine"}
    assert len(tree) == 1


def test_many_nodes_without_labels_are_left_out() -> None:
    tree = make_tree({f"n{at}": {} for at in range(10_000)})
    assert (len(tree), len(tree.left_out)) == (0, 10_000)
    assert outline(tree) == [("", "ClusterTopologyLayer", 0)]


Labels = st.fixed_dictionaries(
    {}, optional={"spine": st.sampled_from("xyz"), "block": st.sampled_from("pq")}
)


@given(st.lists(st.tuples(st.integers(0, 6), st.none() | Labels), max_size=40))
def test_tree_after_updates_equals_a_rebuilt_tree(
    changes: list[tuple[int, dict[str, str] | None]],
) -> None:
    tree = make_tree({})
    nodes: dict[int, dict[str, str]] = {}
    for row, labels in changes:
        if labels is None:
            nodes.pop(row, None)
            tree.remove(row)
        else:
            nodes[row] = labels
            tree.upsert(row, f"n{row}", labels)
        tree.name_ranks(2)
    rebuilt = make_tree({f"n{row}": labels for row, labels in sorted(nodes.items())})
    assert outline(tree) == outline(rebuilt)
    assert tree.left_out == rebuilt.left_out
    paths = {rebuilt.path_of_row(row) for row in rebuilt.rows.tolist()}
    assert {tree.path_of_row(row) for row in tree.rows.tolist()} == paths


def test_last_valid_tree_is_kept_while_layers_are_invalid() -> None:
    book = TopologyCache()
    book.upsert_node(0, "a", {"spine": "s", "block": "b"})
    assert book.upsert(Topology("default", LAYERS))
    tree = book.tree("default")
    assert not book.upsert(Topology("default", (*LAYERS, LAYERS[0])))
    assert book.problem("default") == InvalidLayers(LayerProblem.DUPLICATE, ("Spine",))
    assert book.tree("default") is tree
    assert not book.upsert(Topology("default", LAYERS))
    assert book.problem("default") is None
    assert book.remove("default")
    assert book.tree("default") is None


def test_layers_kept_in_the_status_are_used_after_a_restart() -> None:
    book = TopologyCache()
    book.upsert_node(0, "a", {"spine": "s", "block": "b"})
    book.upsert(Topology("default", (LAYERS[0],), last_valid=LAYERS))
    tree = book.tree("default")
    assert tree is not None
    assert len(tree) == 1
    assert book.problem("default") is not None
