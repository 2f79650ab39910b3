"""The parts of the benchmark that no cluster is needed for."""

import time
from dataclasses import replace

import pytest
from benchmarks.measure import Measurement, percentile
from benchmarks.objects import (
    MOMENT,
    PLAN,
    PLAN_ID,
    PLAN_SIGNATURE,
    list_teams,
    make_annotations,
    make_binding,
    make_quotas,
    make_release,
)
from benchmarks.pace import Pace
from benchmarks.quota import measure, solving, summing
from benchmarks.rows import make_row
from benchmarks.runner import Choice, _divide
from benchmarks.scenarios import CPU, Cell, Load, Mode, Who, make_cells
from benchmarks.wire import Chunks, body_of, is_complete
from tests.support.plan_keys import make_keys

from koord.core.device.allocation import record
from koord.core.device.model import DeviceName, DeviceShare, make_part
from koord.core.gang.start import make_start_id
from koord.core.model.device_names import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koord.core.model.gangs import GangMembership, GangSource
from koord.core.model.plan import Assignment, Placement
from koord.core.model.pods import Handling, Pod, PodShape
from koord.kube.release import PodForm, Written, encode_metadata, make_release_patch
from koord.kube.translate.node_affinity import AffinityForm


@pytest.mark.parametrize(
    ("ordered", "percent", "expected"),
    [([1.0], 50, 1.0), ([1.0, 2.0], 50, 1.0), ([1.0, 2.0], 51, 2.0), ([*range(1, 101)], 99, 99)],
)
def test_a_percentile_is_a_value_that_was_measured(ordered, percent, expected):
    assert percentile(ordered, percent) == expected


@pytest.mark.parametrize("cut", range(1, 30))
def test_chunks_may_be_cut_anywhere(cut):
    stream = b"4\r\nabcd\r\n0a\r\n0123456789\r\n0\r\n\r\n"
    chunks = Chunks()
    assert chunks.feed(stream[:cut]) + chunks.feed(stream[cut:]) == b"abcd0123456789"
    assert chunks.ended


HEAD = b"HTTP/1.1 200 OK\r\nX: y\r\n"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (HEAD + b"Content-Length: 2\r\n\r\n{}", b"{}"),
        (HEAD + b"content-length: 0\r\n\r\n", b""),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"{}"),
    ],
)
def test_an_answer_is_complete_with_its_last_byte(answer, body):
    assert not any(is_complete(answer[:end]) for end in range(len(answer)))
    assert is_complete(answer)
    assert body_of(answer) == body


@pytest.mark.parametrize("has_devices", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_the_ceiling_writes_what_the_operators_write(size, has_devices):
    group = "bench/gang-7" if size > 1 else ""
    pod = Pod("", "bench", "", PodShape(()), handling=Handling.RELEASE_AND_BIND)
    gang = GangMembership(group, GangSource.POD_GROUP) if group else None
    pods = [replace(pod, uid=f"uid-{at}", name=f"pod-7-{at}", gang=gang) for at in range(size)]
    gpu = make_part({GPU_CORE: 100, GPU_MEMORY: 81251 << 20, GPU_MEMORY_RATIO: 100})
    names = {(GPU, 0): DeviceName("GPU-node-1-0")}
    assignments = tuple(
        Assignment(
            pod,
            "node-1",
            (record(pod.uid, [DeviceShare(GPU, 0, gpu)], names),) if has_devices else (),
        )
        for pod in pods
    )
    strengths = {group: size} if group else {}
    placement = Placement("unit", PLAN_ID, group, assignments, strengths=strengths)

    written = encode_metadata(assignments[0], placement, make_keys(), int(MOMENT)).annotations
    start_id = make_start_id(placement.uids)
    name = "gang-7" if size > 1 else ""
    ours = make_annotations("node-1", name, size, start_id, has_devices=has_devices)

    for key in (PLAN, PLAN_SIGNATURE):
        # Digests and signatures differ, in their value only.
        assert len(ours[key]) == len(written[key])
        written[key] = ours[key]
    assert ours == written
    assert make_release("uid-0", ours) == make_release_patch(
        assignments[0],
        PodForm(has_annotations=False, affinity=AffinityForm()),
        Written(written),
    )


def test_a_binding_names_the_pod_by_its_uid():
    binding = make_binding("bench", "p", "uid-0", "node-1", {"a": "b"})
    assert binding["metadata"] == {
        "name": "p",
        "namespace": "bench",
        "uid": "uid-0",
        "annotations": {"a": "b"},
    }
    assert binding["target"]["name"] == "node-1"


def make_measurement(pods_per_s, pace=2.0):
    return Measurement(
        pods_per_s,
        writes_per_pod=2.0,
        p50=0.1,
        p99=0.2,
        cpu_ms_per_pod=1.0,
        rss_mib=90.0,
        noise=0,
        pace=pace,
    )


def test_a_run_is_compared_with_the_ceilings_before_and_after_it():
    cell = Cell(Load("some", 10, 1, 4, CPU), Mode.BURST, gated=True, who=tuple(Who))
    runs = [*map(make_measurement, [50, 90, 30])]
    around = ([100, 200], [200, 100], [100, 100])
    ceilings = [tuple(map(make_measurement, rates)) for rates in around]

    row = make_row(cell, Who.OPERATORS, runs, ceilings)

    assert row.pods_per_s == 50
    assert row.ceiling_pods_per_s == 150
    assert row.share == 0.333  # of 50/150, 90/150 and 30/100 the one in the middle
    assert (row.share_spread.least, row.share_spread.most) == (0.3, 0.6)


def test_a_machine_that_is_slower_for_a_while_is_not_held_against_who_is_measured_then():
    cell = Cell(Load("some", 10, 1, 4, CPU), Mode.BURST, gated=True, who=tuple(Who))
    ceiling = make_measurement(100)
    row = make_row(cell, Who.OPERATORS, [make_measurement(45, pace=4.0)], [(ceiling, ceiling)])
    assert (row.share, row.share_by_pace) == (0.45, 0.9)
    assert (row.cpu_ms_per_pod, row.cpu_by_pace) == (1.0, 0.25)


def test_the_pace_is_told_of_the_time_in_question(tmp_path):
    began = time.time()
    with Pace(tmp_path) as pace:
        while not any(file.read_text() for file in tmp_path.iterdir()):
            time.sleep(0.05)
        assert pace.between(began, time.time()) > 0
        with pytest.raises(ValueError, match="too short"):
            pace.between(began - 10, began - 5)


def test_what_is_to_be_compared_is_measured_turn_about():
    series = [[cell.load.name for cell in cells] for cells in _divide(make_cells(quick=False))]
    by_turns = {tuple(names) for names in series if len(names) > 1}
    assert by_turns == {
        ("no-quotas", "quotas", "quotas-with-queues"),
        ("one-gang", "one-gang-gathered"),
        ("large-alone", "large"),
    }


def test_rows_are_chosen_by_a_part_of_their_name():
    chosen = Choice(only="gangs-kube-scheduler-burst")
    assert chosen.names() == ["gangs-kube-scheduler-burst"]
    assert Choice(only="nonsense").names() == []
    assert set(Choice(only="cold").names()) == {"cold-start", "cold-start-kube-scheduler"}


def test_rows_with_and_without_quotas_are_chosen_together():
    names = ("no-quotas", "quotas", "quotas-with-queues")
    modes = [f"{name}-gated-{mode}" for name in names for mode in Mode]
    assert Choice(only="quotas").names() == modes


def test_the_tree_of_quotas_has_three_levels_and_parents_come_first():
    parents = {"": 0}
    for quota in make_quotas():
        labels = quota["metadata"]["labels"]
        above = labels.get("quota.scheduling.koordinator.sh/parent", "")
        parents[quota["metadata"]["name"]] = parents[above] + 1
    assert {parents[name] for name in list_teams()} == {3}


def test_every_row_has_a_name_of_its_own():
    for quick in (True, False):
        names = Choice(quick=quick).names()
        assert len(names) == len(set(names))


def test_every_question_about_quotas_can_be_asked() -> None:
    questions = (*solving(30, ("cpu", "memory")), *summing(30, 100))
    assert all(len(measure(call, 1)) == 1 for _, call in questions)
