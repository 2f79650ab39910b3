"""What users have used lately: laws of the ledgers, example 10, restarts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from koord.core.queue.usage import LEAST_SECONDS, Decay
from koord.core.queue.users import MOST_USERS, UseOfUsers, UseRecord

GPU = "nvidia.com/gpu"
SHORT = Decay(300, 600)
EIGHT = ((GPU, 8), ("pods", 1))
TIMES = st.tuples(st.integers(0, 5000), st.integers(1, 5000)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


def play(runs: list[tuple[str, int, int]], now: int, decay: Decay = SHORT) -> UseOfUsers:
    """Return the use after pods of users ran from and until times; those that still run, too."""
    use = UseOfUsers(decay)
    for at, (user, start, end) in enumerate(runs):
        if start <= now:
            use.start(f"{at}", ("q", user), EIGHT, (start, 0))
        if end <= now:
            use.end(f"{at}", end)
    return use


@given(st.integers(0, 10**6), st.integers(1, 3000))
def test_the_sum_of_weights_is_that_of_the_ticks(start: int, length: int) -> None:
    decay = Decay(7, 70)
    passed = decay.weigh_until(start + length) - decay.weigh_until(start)
    assert passed == decay.charge(1, start, start + length)


def test_example_10() -> None:
    """u ran ticks 0 to 2, v ticks 3 and 4; w is new: v has used most by then."""
    use = play([("u", 0, 900), ("v", 900, 1500)], 1500)
    of_u, of_v, of_w = (use.use(("q", user), 1500) for user in ("u", "v", "w"))
    assert (of_u, of_v, of_w) == ({GPU: 694_296_000}, {GPU: 1_074_019_200}, {})
    capacity = {GPU: 8}
    order = sorted("vuw", key=lambda user: use.share(("q", user), capacity, 1, 1500))
    assert order == ["w", "u", "v"]


@given(st.lists(st.tuples(st.sampled_from("uvw"), TIMES), max_size=6), st.integers(0, 9000))
def test_use_depends_neither_on_when_it_is_read_nor_on_restarts(
    runs: list[tuple[str, tuple[int, int]]], cut: int
) -> None:
    events = [(user, start, end) for user, (start, end) in runs]
    end = 10_000
    whole = play(events, end)
    kept = play(events, cut).record("q", cut)
    again = UseOfUsers(SHORT)
    again.restore("q", kept, end)
    for at, (user, start, stop) in enumerate(events):
        if stop > cut:  # those that had ended by then are gone
            again.start(f"{at}", ("q", user), EIGHT, (start, cut))
            again.end(f"{at}", stop)
    for user in "uvw":
        assert again.use(("q", user), end) == whole.use(("q", user), end)


@given(st.integers(0, SHORT.epoch - 8000), st.integers(1, 3000))
def test_of_two_equal_uses_the_one_a_half_life_later_weighs_twice(start: int, length: int) -> None:
    later = start + SHORT.half_life
    use = play([("u", start, start + length), ("v", later, later + length)], later + length)
    of_u, of_v = (use.use(("q", user), later + length)[GPU] for user in "uv")
    assert of_v == 2 * of_u


def test_a_new_user_counts_as_if_he_had_run_for_a_while() -> None:
    use = UseOfUsers(SHORT)
    capacity = {GPU: 1}
    use.start("a", ("q", "new"), EIGHT, (600, 0))
    first = use.share(("q", "new"), capacity, 1, 600)
    assert first == Fraction(8 * LEAST_SECONDS * SHORT.weight(2))
    assert use.share(("q", "new"), capacity, 1, 900) == first
    assert use.share(("q", "new"), capacity, 2, 900) == first / 2
    use.end("a", 700)
    assert use.share(("q", "new"), capacity, 1, 900) == Fraction(8 * 100 * SHORT.weight(2))


@given(st.integers(1, 5000))
def test_a_new_epoch_of_weights_changes_no_order(later: int) -> None:
    border = SHORT.epoch
    runs = [("u", border - 5000, border - 100), ("v", border - 2000, border + 9000)]
    use = play(runs, border - 1)
    before = [use.use(("q", user), border - 1)[GPU] for user in "uv"]
    now = border + later
    after = [use.use(("q", user), now).get(GPU, 0) for user in "uv"]
    _ = [use.share(("q", user), {GPU: 8}, 1, now) for user in "uv"]
    rebased = [use.use(("q", user), now).get(GPU, 0) for user in "uv"]
    assert (before[0] > before[1]) == (after[0] > before[1])
    assert rebased[0] < after[0]
    assert rebased[1] > rebased[0] - (before[0] >> 64)


def test_only_the_largest_users_outlive_a_restart() -> None:
    use = UseOfUsers(SHORT)
    for at in range(MOST_USERS + 20):
        use.start(f"{at}", ("q", f"u{at:03}"), ((GPU, at + 1),), (0, 0))
    record = use.record("q", 600)
    assert len(record.ledgers) == MOST_USERS
    assert "u000" not in record.ledgers
    assert use.record("other", 600) == UseRecord(600, {})


def test_nonsense_that_was_kept_does_no_harm() -> None:
    use = UseOfUsers(SHORT)
    use.restore("q", UseRecord(10**12, {"u": {GPU: -5}}), 600)
    assert use.use(("q", "u"), 600) == {}
    assert replace(use.record("q", 600), until=0) == UseRecord(0, {})
