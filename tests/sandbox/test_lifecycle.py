"""Nothing of a sandbox is left behind, however it ends."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from koord_sandbox import Component, Sandbox, SandboxError
from koord_sandbox.errors import NameTakenError, StartError
from koord_sandbox.record import State, list_names, read_record, read_status

pytestmark = [pytest.mark.sandbox, pytest.mark.usefixtures("state_home")]

# Forks a child that inherits the pipe to the supervisor and outlives its parent, as the workers of
# a process pool do. What a shell starts in the background ignores SIGINT, and so would the owner.
_OWNER = """
import os, signal, sys, time
from koord_sandbox import Sandbox
signal.signal(signal.SIGINT, signal.default_int_handler)
with Sandbox("owned", components=[]):
    if os.fork() == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(600)
    print("up", flush=True)
    while True:
        time.sleep(0.1)  # a signal just before a longer wait would only be handled after it
"""


def test_stop_leaves_nothing(trace):
    with Sandbox() as box:
        traces = trace(box.record)
        assert len(traces.processes) == 1 + len(Component)
        assert traces.are_all_there()

    assert traces.list_left() == []
    assert list_names() == []


def test_two_sandboxes_run_side_by_side(trace):
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(lambda name: Sandbox(name, components=[]), ["first", "second"])
    with second:
        with first:
            first.create_namespace("only-here")
            assert "only-here" not in second.kubectl("get", "namespaces")
        assert trace(second.record).are_all_there()
        assert list_names() == ["second"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_a_sandbox_ends_with_its_owner(number, trace):
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with owner:
        assert owner.stdout.readline() == b"up\n"
        traces = trace(read_record("owned"))
        assert traces.are_all_there()

        owner.send_signal(number)
        try:
            owner.wait()
            assert traces.are_gone_soon(), traces.list_left()
        finally:
            os.killpg(owner.pid, signal.SIGKILL)  # the forked child


def test_a_sandbox_ends_with_its_supervisor(trace):
    with Sandbox(components=[]) as box:
        traces = trace(box.record)
        os.kill(box.record.supervisor.pid, signal.SIGKILL)
        box._launched.supervisor.wait()

    assert traces.are_gone_soon(), traces.list_left()


def test_a_sandbox_fails_with_the_name_of_a_component_that_ended(trace, wait_for):
    with Sandbox("lame", components=[Component.KWOK]) as box:
        traces = trace(box.record)
        os.kill(box.record.read_pids()["kwok"], signal.SIGKILL)
        box._launched.supervisor.wait()

        status = read_status("lame")
        assert (status.state, status.nodes) == (State.FAILED, None)
        assert status.detail.startswith("kwok ended with status -9")
        assert traces.list_left() == [str(traces.directory)]
    assert traces.list_left() == []


def test_a_failed_start_names_the_component_and_leaves_nothing():
    arguments = {Component.APISERVER: ["--no-such-flag"]}
    with pytest.raises(StartError, match=r"(?s)kube-apiserver ended.*no-such-flag"):
        Sandbox(components=[], arguments=arguments)
    assert list_names() == []


def test_two_sandboxes_cannot_share_a_name(state_home):
    (state_home / "koord-operators" / "sandboxes" / "mine").mkdir(parents=True)
    with pytest.raises(NameTakenError, match="koord sandbox down --name mine"):
        Sandbox("mine", components=[])
    assert list_names() == ["mine"]


@pytest.mark.parametrize("name", ["", "../up", "Upper", "-dash", "a" * 41])
def test_invalid_names_are_refused(name):
    with pytest.raises(SandboxError, match="is not a valid name"):
        Sandbox(name, components=[])


def test_a_restarted_component_keeps_its_data(trace):
    with Sandbox(components=[]) as box:
        box.create_namespace("kept")
        for component in (Component.ETCD, Component.APISERVER):
            before = box.record.read_pids()
            box.restart(component)
            after = box.record.read_pids()
            assert {name for name in before if before[name] != after[name]} == {component}
            assert "kept" in box.kubectl("get", "namespaces")
        traces = trace(box.record)
        assert traces.are_all_there()
    assert traces.list_left() == []
