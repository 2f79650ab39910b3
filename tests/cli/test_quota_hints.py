"""A refusal by a quota names who uses it, who has the rest, and what would help."""

from dataclasses import replace

from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cli.readings import ask_gang, make_reading
from tests.objects import upsert_quota

from koord.answers.explanation import Explanation
from koord.answers.hints import find_hints
from koord.core.quota.entitlement import ReclaimSetting
from koord.core.quota.model import QuotaSpec
from koord.core.quota.reasons import AncestorInsufficient, InsufficientEntitlement, QuotaShortage

OFF = ReclaimSetting(is_known=True)


def ask(*quotas: QuotaSpec, wants: int, in_quota: str = "a", gpus: int = 64) -> Explanation:
    """Explain a gang; ``hog`` uses 24 and ``x`` 6 GPUs of quota ``a``, and ``big`` 32 of ``b``."""
    nodes = [make_node(f"n{at}").gpu(8).build() for at in range(gpus // 8)]
    reading = make_reading(
        *nodes,
        make_pod_group("t/hog", min_member=3).build(),
        *(
            make_pod(f"t/hog-{at}").gpu(8).quota("a").gang("t/hog").running(f"n{at}").build()
            for at in range(3)
        ),
        make_pod("t/x").gpu(6).quota("a").running("n3").build(),
        make_pod_group("t/big", min_member=4).build(),
        *(
            make_pod(f"t/big-{at}").gpu(8).quota("b").gang("t/big").running(f"n{4 + at}").build()
            for at in range(4)
        ),
        make_pod_group("default/a", min_member=1).build(),
        make_pod("w-0").gpu(wants).quota(in_quota).gang("default/a").build(),
    )
    for spec in quotas:
        upsert_quota(reading.state, spec)
    return ask_gang(replace(reading, reclaim=OFF))


def quota(name: str, low: int, high: int, **more: object) -> QuotaSpec:
    return make_quota(name, namespace="q", min={GPU: low}, max={GPU: high}, **more)


def test_a_full_max_names_its_users_and_the_edit_to_try() -> None:
    answer = ask(quota("a", 16, 32), quota("b", 16, 64), wants=8)
    assert answer.advice == (
        f"Quota a uses 30 {GPU}: gang t/hog (24), pod t/x (6).",
        (
            "Wait until pods of a end, ask for less, or ask the administrators to raise the "
            "max of a: koord quota "
            f"what-if a --max {GPU}=38 shows what that would do."
        ),
    )


def test_more_than_max_at_once_needs_no_waiting() -> None:
    answer = ask(quota("a", 16, 32), quota("b", 16, 64), wants=33, gpus=128)
    assert answer.advice[1] == (
        f"Ask for less, or ask the administrators to raise the max of a: koord quota "
        f"what-if a --max {GPU}=63 "
        "shows what that would do."
    )


def test_a_used_up_share_names_who_has_the_rest() -> None:
    answer = ask(quota("a", 0, 64), quota("b", 32, 64), wants=8)
    assert answer.reason is not None
    assert answer.reason.reason.code == "InsufficientEntitlement"
    assert answer.advice == (
        f"Quota a uses 30 {GPU}: gang t/hog (24), pod t/x (6).",
        (
            f"The rest is shared: quota b is entitled to 32 {GPU} (guaranteed 32) and uses 32, by "
            "gang t/big (32). They are entitled to it, so it comes only when they end or request "
            "less."
        ),
        (
            "Wait until other quotas request less, ask for less, or ask the administrators "
            "to raise the min of a: "
            f"koord quota what-if a --min {GPU}=38 shows what that would do."
        ),
    )


def test_over_use_of_others_is_not_reclaimed_for_more_than_a_share() -> None:
    answer = ask(quota("a", 16, 64), quota("b", 8, 64), wants=16)
    assert answer.reason is not None
    assert answer.reason.reason.code == "InsufficientEntitlement"
    assert answer.advice[1].endswith(
        "Quota b uses 4 more than its share. With this, quota a would use more than it is "
        "entitled to (36), so nothing is reclaimed for it."
    )
    assert "Reclaim" not in answer.advice[1]


def test_over_use_of_others_is_reclaimed_for_what_a_share_allows() -> None:
    state = make_reading(
        make_node("n0").gpu(8).build(), make_pod("t/x").gpu(6).quota("b").running("n0").build()
    ).state
    for spec in (quota("a", 4, 8), quota("b", 2, 8)):
        upsert_quota(state, spec)
    state.upsert_pod(make_pod("t/w").gpu(4).quota("a").build())
    # What was planned before it uses the share.
    short = (QuotaShortage(GPU, 4, 4, 4),)
    reason = InsufficientEntitlement(("a",), short, ((GPU, 4),), ((GPU, 4),), ((GPU, 4),))
    (hint,) = find_hints(state, reason, reclaim=OFF)
    assert hint.endswith(
        "Quota b uses 2 more than its share. Reclaim is off (elasticQuota.reclaim)."
    )


def test_a_full_quota_above_names_the_users_below_it() -> None:
    state = make_reading(
        make_node("n0").gpu(8).build(), make_pod("t/x").gpu(6).quota("a").running("n0").build()
    ).state
    upsert_quota(state, quota("org", 8, 8, is_parent=True))
    upsert_quota(state, quota("a", 0, 8, parent="org"))
    short = (QuotaShortage(GPU, 8, 6, 4),)
    reason = AncestorInsufficient(("org", "a"), short, ((GPU, 8),), ((GPU, 6),), ((GPU, 4),))
    assert find_hints(state, reason) == (f"Quota org uses 6 {GPU}: pod t/x (6).",)
    assert "koord quota explain org" in reason.advice()[0]


def test_a_scaled_min_is_named_where_less_is_guaranteed() -> None:
    answer = ask(quota("a", 0, 64), quota("b", 40, 64), quota("c", 40, 64), wants=8, in_quota="c")
    assert answer.reason is not None
    assert answer.reason.message.startswith(
        f"Quota c is guaranteed 32 {GPU} (its min of 40 is scaled down: the mins of the tree add "
        "up to 80 and there are 64) and uses 0. Quota a uses "
    )


def test_too_little_capacity_asks_for_nodes() -> None:
    advice = ask(quota("a", 16, 200), quota("b", 16, 64), wants=100).advice
    assert advice[-1] == (
        f"Ask for less, or ask the administrators to add nodes: the nodes that quotas "
        f"share have only 64 {GPU}."
    )
