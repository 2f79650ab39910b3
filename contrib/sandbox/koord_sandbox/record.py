"""The record of a sandbox on disk, by which other processes see its state and stop it.

Each sandbox has a directory below the state directory; creating it reserves the name. The file
`sandbox.json` in it is written when the supervisor has been started.

The supervisor is not always a child of this process. The kernel reuses process numbers, so it is
identified by number and start time.
"""

import http.client
import os
import re
import select
import shutil
import signal
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from koord_sandbox.client import AdminClient
from koord_sandbox.components import SandboxLayout
from koord_sandbox.errors import NameTakenError, SandboxApiError, SandboxError, UnknownSandboxError
from koord_sandbox.nodes import count_nodes
from koord_sandbox.paths import state_directory, write_privately

DEFAULT_NAME = "default"
"""The name that commands use unless another is given."""
_PATIENCE = 10.0  # seconds; the supervisor needs a fraction of one
_STATE, _START = 0, 19  # fields of /proc/PID/stat after the command's name
_ENDED = {"Z", "X"}


class Process(msgspec.Struct, frozen=True):
    """A process, identified by number and start time."""

    pid: int
    started: str
    """In clock ticks since boot, as the kernel writes it."""

    def is_alive(self) -> bool:
        """Whether this process, not a later one of its number, still runs."""
        return _read_start(self.pid) == self.started

    def end(self) -> None:
        """Terminate it, then kill it; return when it has ended."""
        descriptor = self._open()
        if descriptor is None:
            return
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(descriptor, number)
                if _has_ended(descriptor):
                    return
        except ProcessLookupError:
            pass
        finally:
            os.close(descriptor)

    def _open(self) -> int | None:
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        # Only now it is certain that the descriptor belongs to this process.
        if self.is_alive():
            return descriptor
        os.close(descriptor)
        return None


def describe_process(pid: int) -> Process:
    return Process(pid, _read_start(pid) or "")


def _read_start(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the command is in parentheses and may itself contain some.
    fields = text.rpartition(")")[2].split()
    return None if fields[_STATE] in _ENDED else fields[_START]


def _has_ended(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(_PATIENCE * 1000))


_T = TypeVar("_T")

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_FILE = "sandbox.json"


class ProgramRecord(msgspec.Struct, frozen=True):
    """A program that the sandbox uses."""

    path: str
    version: str
    source: str


class Record(msgspec.Struct, frozen=True):
    """A sandbox as another process sees it."""

    name: str
    directory: str
    server_port: int
    etcd_port: int
    etcd_peer_port: int
    supervisor: Process
    since: datetime
    programs: dict[str, ProgramRecord]

    @property
    def layout(self) -> SandboxLayout:
        return SandboxLayout(
            directory=Path(self.directory),
            server_port=self.server_port,
            etcd_port=self.etcd_port,
            etcd_peer_port=self.etcd_peer_port,
        )

    def read_pids(self) -> dict[str, int]:
        return _read_json(self.layout.directory / "pids.json", dict[str, int]) or {}

    def read_failure(self) -> "StartFailure | None":
        """Return the component that ended the sandbox, if one did."""
        return _read_json(self.layout.directory / "failure.json", StartFailure)


class StartFailure(msgspec.Struct, frozen=True):
    """The component that ended by itself, whereupon the sandbox was stopped."""

    component: str
    status: int


def directory_of(name: str) -> Path:
    return state_directory() / name


def check_name(name: str) -> None:
    """Raise `SandboxError` unless a sandbox can have a name."""
    if not _NAME.fullmatch(name):
        raise SandboxError(
            f"{name!r} is not a valid name of a sandbox: use lower-case letters, digits and '-', "
            "at most 40 characters"
        )


def take_name(name: str) -> Path:
    """Create the directory of a new sandbox; raise `NameTakenError` when there is one."""
    check_name(name)
    directory = directory_of(name)
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        raise NameTakenError(
            f"sandbox {name!r} exists already; see it with `koord sandbox status`, "
            f"remove it with `koord sandbox down --name {name}`"
        ) from None
    return directory


def write_record(record: Record) -> None:
    write_privately(record.layout.directory / _FILE, msgspec.json.encode(record))


def read_record(name: str) -> Record | None:
    """Return the record of a sandbox; None while it starts, or if its start failed."""
    return _read_json(directory_of(name) / _FILE, Record)


def list_names() -> list[str]:
    """Return the names of all sandboxes, dead ones included."""
    try:
        return sorted(entry.name for entry in state_directory().iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []


def read_running_record(name: str) -> Record:
    """Return the record of a running sandbox; raise `UnknownSandboxError` otherwise."""
    record = read_record(name)
    if record is None or not record.supervisor.is_alive():
        raise UnknownSandboxError(_explain_unknown(name))
    return record


def take_down(name: str) -> None:
    """Stop a sandbox, whoever started it, and remove everything that belongs to it."""
    if name not in list_names():
        raise UnknownSandboxError(_explain_unknown(name))
    record = read_record(name)
    if record is not None:
        record.supervisor.end()
    remove(directory_of(name))


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)


def _explain_unknown(name: str) -> str:
    alternatives = f"there are: {', '.join(names)}; " if (names := list_names()) else ""
    option = "" if name == DEFAULT_NAME else f" --name {name}"
    return f"no sandbox {name!r} is running; {alternatives}`koord sandbox up{option}` starts one"


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _read_json(path: Path, kind: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        return None  # not written yet, or by another version


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
        nodes=_count_nodes(AdminClient(record.layout)) if is_running else None,
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
