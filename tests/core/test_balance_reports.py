"""What users of other deschedulers have reported: pods that went although nothing was too much."""

from __future__ import annotations

from tests.core.balance_cases import make_node, make_pod, make_rules, moved, run

from koord.core.balance.detectors import AnomalyCondition
from koord.core.balance.memory import BalancePast
from koord.core.balance.model import BalancePool, BalanceRules, NodeClass, Thresholds


def test_a_node_gives_no_prod_pods_once_prod_uses_little_enough() -> None:
    """koordinator 2225: all of them went, while the targets had room."""
    thresholds = Thresholds({"cpu": 60}, {"cpu": 90}, {"cpu": 30}, {"cpu": 40})
    pods = [make_pod(f"p{at}", "n1", 300, prod=True) for at in range(6)]
    nodes = make_node("n1", *pods), make_node("n2"), make_node("n3")
    outcome = run(*nodes, rules=make_rules(thresholds))
    assert outcome.pools[0].classes["n1"] is NodeClass.PROD_HIGH
    assert len(moved(outcome)) == 1  # 45 % of 4000 are 37.5 % without one of 300


def test_a_node_that_gives_resets_the_count_of_no_other() -> None:
    """koordinator 1854: every eviction began the count of all hot nodes anew."""
    condition = AnomalyCondition(abnormal_from=3, normal_from=2, timeout=600.0)
    pool = BalancePool("default", Thresholds({"cpu": 30}, {"cpu": 60}), condition=condition)
    past, gave = BalancePast(), list[set[str]]()
    for at in range(5):
        # The second one is hot from the third round on, in which the first one gives.
        nodes = [
            make_node(name, *(make_pod(f"{name}-{n}", name, cpu) for n in range(8)))
            for name, cpu in (("a", 400), ("b", 400 if at >= 2 else 150))
        ]
        outcome = run(*nodes, make_node("c"), rules=BalanceRules((pool,)), past=past, now=at * 60.0)
        gave.append({name[0] for name, _ in moved(outcome)})
    assert gave[:3] == [set(), set(), {"a"}]
    assert "b" in gave[4]
