"""The state of every sandbox of this user, for `koord sandbox status`."""

import http.client
from datetime import datetime
from enum import StrEnum

import msgspec

from koord.sandbox.client import AdminClient
from koord.sandbox.errors import SandboxApiError
from koord.sandbox.launch import make_client
from koord.sandbox.nodes import count_nodes
from koord.sandbox.record import (
    ProgramRecord,
    Record,
    directory_of,
    list_names,
    read_record,
)


class State(StrEnum):
    """State of a sandbox."""

    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    """A component ended by itself, and the others were stopped with it."""
    DEAD = "dead"
    """Its processes are gone, its files are not, as after a restart of the machine."""


class SandboxStatus(msgspec.Struct, frozen=True):
    """One sandbox."""

    name: str
    state: State
    directory: str
    detail: str = ""
    server: str = ""
    kubeconfig: str = ""
    nodes: int | None = None
    since: datetime | None = None
    supervisor: int | None = None
    pids: dict[str, int] = {}
    programs: dict[str, ProgramRecord] = {}


def list_statuses() -> list[SandboxStatus]:
    return [read_status(name) for name in list_names()]


def read_status(name: str) -> SandboxStatus:
    record = read_record(name)
    if record is None:
        return SandboxStatus(
            name,
            State.STARTING,
            str(directory_of(name)),
            "no record yet",
        )
    state, detail = _read_state(record)
    is_running = state is State.RUNNING
    return SandboxStatus(
        name=name,
        state=state,
        detail=detail,
        directory=str(record.layout.directory),
        server=record.layout.server,
        kubeconfig=str(record.layout.admin_kubeconfig),
        nodes=_count_nodes(make_client(record.layout)) if is_running else None,
        since=record.since,
        supervisor=record.supervisor.pid,
        pids=record.read_pids() if is_running else {},
        programs=record.programs,
    )


def _read_state(record: Record) -> tuple[State, str]:
    if record.supervisor.is_alive():
        return State.RUNNING, ""
    failure = record.read_failure()
    if failure is None:
        return State.DEAD, ""
    log = record.layout.directory / f"{failure.component}.log"
    return State.FAILED, f"{failure.component} ended with status {failure.status}, see {log}"


def _count_nodes(client: AdminClient) -> int | None:
    try:
        return count_nodes(client)
    except (SandboxApiError, OSError, http.client.HTTPException):
        return None  # it is starting, or ending
    finally:
        client.close()
