"""Objects that are as large as the API server and etcd take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.core.model.object_size import MOST_ANNOTATIONS, count_annotations
from koord.kube.errors import KubeError, RequestTooLarge, error_of
from koord.kube.release import PodForm, Written
from koord.kube.retry import is_transient
from koord.kube.translate.node_affinity import AffinityForm
from koord.kube.wire import WireStatus

NAMES = st.sampled_from(["a", "b", "operators.koordinator.sh/plan"])
NEARLY = st.integers(MOST_ANNOTATIONS - 40, MOST_ANNOTATIONS)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (500, "etcdserver: request is too large"),
        (
            409,
            'Operation cannot be fulfilled on pods/binding "p": etcdserver: request is too large',
        ),
        (500, "rpc error: code = ResourceExhausted desc = trying to send message larger than max"),
        (422, 'Pod "p" is invalid: metadata.annotations: Too long: may not be more than 262144'),
        (413, "Request entity too large: limit is 3145728"),
    ],
)
def test_what_is_too_large_is_known_whatever_the_status(status: int, message: str) -> None:
    error: KubeError = error_of(WireStatus(code=status, message=message))
    assert isinstance(error, RequestTooLarge)
    assert not is_transient(error)


@pytest.mark.parametrize("status", [409, 422, 500, 503])
def test_other_errors_are_not(status: int) -> None:
    assert not isinstance(error_of(WireStatus(code=status, message="etcd")), RequestTooLarge)


def test_bytes_are_counted_not_characters() -> None:
    assert count_annotations({"a": "ä", "b": ""}) == 4


@given(
    st.dictionaries(NAMES, st.text(max_size=9)), st.dictionaries(NAMES, st.text(max_size=9)), NEARLY
)
def test_what_fits_surely_fits(
    present: dict[str, str], written: dict[str, str], filled: int
) -> None:
    present["filler"] = "x" * (filled - count_annotations(present) - len("filler"))
    form = PodForm(
        has_annotations=True,
        affinity=AffinityForm(),
        annotation_bytes=count_annotations(present),
    )
    assert form.annotation_bytes == filled
    if Written(written).fits_surely(form):
        assert count_annotations({**present, **written}) <= MOST_ANNOTATIONS
    assert not Written(written).fits_surely(None)
