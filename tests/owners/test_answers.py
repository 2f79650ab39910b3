"""What people are told of gangs that are found from owners."""

from dataclasses import replace

from tests.cli.readings import ask_gang, ask_pod, make_reading
from tests.owners.frameworks import Jobs, replica
from tests.owners.test_worked_examples import GPT


def ask(jobs: Jobs, name: str):
    reading = replace(make_reading(), state=jobs.state)
    jobs.state.refresh()
    return ask_pod(reading, f"default/{name}"), ask_gang(reading, jobs.gang_of(name))


def test_a_pod_and_its_gang_are_explained() -> None:
    jobs = Jobs(nodes=2).own_objects(GPT)
    jobs.pods(*(replica(GPT, "worker", at) for at in range(3)))
    for answer in ask(jobs, "gpt-worker-0"):
        assert answer.reason is not None
        assert answer.reason.reason.code == "MissingMembers"
        assert "pytorchjob:gpt" in answer.reason.reason.text()
    jobs.pods(replica(GPT, "master", 0))
    for answer in ask(jobs, "gpt-worker-0"):
        assert answer.reason is not None
        assert answer.reason.reason.code == "InsufficientNodes"


def test_a_pod_whose_owner_is_unknown_is_explained() -> None:
    jobs = Jobs().pods(replica(GPT, "worker", 0))
    for answer in ask(jobs, "gpt-worker-0"):
        assert answer.reason is not None
        assert answer.reason.reason.code == "OwnerNotFound"
