"""The message that marks a victim says for whom it goes, and is read back."""

from hypothesis import given
from hypothesis import strategies as st

from koord.core.eviction.model import read_victim_text, write_victim_text
from koord.core.model.pods import PreemptedBy

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", fullmatch=True)
KEYS = st.builds("/".join, st.tuples(NAMES, NAMES))
GROUPS = st.lists(KEYS, min_size=1, max_size=3).map(",".join)


@given(st.builds(PreemptedBy, NAMES, GROUPS | NAMES, KEYS), st.integers(), st.booleans())
def test_it_is_read_as_it_was_written(by: PreemptedBy, priority: int, compat: bool) -> None:  # noqa: FBT001
    text = write_victim_text(by, priority, "koord-scheduler", compat=compat)
    read = read_victim_text(text)
    assert read is not None
    assert (read.plan_id, read.preemptor) == (by.plan_id, by.preemptor)
    assert read.pod == (by.pod if compat else "")


def test_other_words_are_not() -> None:
    assert read_victim_text("preempting to accommodate higher priority pods") is None
    assert read_victim_text("") is None
