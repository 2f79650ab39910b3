"""When something that keeps changing is looked at."""

from koord.controllers.debounce import Due, Pause

PAUSE = Pause(quiet=1.0, longest=3.0)


def test_quiet_things_are_looked_at_after_the_pause() -> None:
    assert Due(10.0, PAUSE).at == 11.0


def test_every_change_puts_it_off_but_never_beyond_the_longest_wait() -> None:
    due = Due(10.0, PAUSE)
    moments = []
    for now in (10.5, 11.0, 12.5, 12.9):
        due.put_off(now)
        moments.append(due.at)
    assert moments == [11.5, 12.0, 13.0, 13.0]
