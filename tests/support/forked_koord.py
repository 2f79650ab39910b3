"""The command ``koord`` for tests, forked from a process that has imported it.

Most of the processor time of a short command, a second, is the import of modules, and tests run
hundreds. The file that ``find_koord`` returns is a small client: it hands its arguments,
environment, working directory and open files to a server, passes signals on, and ends as the
command ends. What runs is the command line, in a process of its own. ``tests.support.operators``
has the path of the installed command, for tests that change what Python finds.
"""

import atexit
import gc
import json
import os
import pkgutil
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

_CLIENT = """#!{python} -IS
import json, os, signal, socket, sys

link = socket.socket(socket.AF_UNIX)
link.connect({address!r})
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: link.send(bytes([number])))
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(link, [len(request).to_bytes(4, "big")], [0, 1, 2])
link.sendall(request)
code = int(link.recv(16))
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@cache
def find_koord() -> Path:
    """Return an executable file named ``koord``; its server ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="koord-"))
    address = str(folder / "socket")
    server = subprocess.Popen(
        [sys.executable, "-m", __name__, address],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def close() -> None:
        with server:
            assert server.stdin is not None
            server.stdin.close()
        shutil.rmtree(folder)

    atexit.register(close)
    assert server.stdout is not None
    assert server.stdout.readline(), "the server did not start"
    command = folder / "koord"
    command.write_text(_CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
    command.chmod(0o755)
    return command


def serve(address: str) -> bool:
    """Start commands until standard input ends; return True in a process that is to be one."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            readable, _, _ = select.select([server, 0], [], [])
            if 0 in readable:
                return False
            link, _ = server.accept()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    """What they used of the processors counts as used by this process."""
            if os.fork() == 0:
                break
            link.close()
    return _attend(link)


def _attend(link: socket.socket) -> bool:
    """Start the command that a client asks for, and tell it how it ends."""
    size, files, _, _ = socket.recv_fds(link, 4, 3)
    arguments, folder, environment = json.loads(
        link.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    )
    command = os.fork()
    if command == 0:
        link.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
    for file in files:
        os.close(file)
    if command == 0:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        random.seed()
        sys.argv[:] = ["koord", *arguments]
        return True
    end = os.pidfd_open(command)
    while end not in select.select([end, link], [], [])[0]:
        # A client that has gone was killed.
        for number in link.recv(16) or [signal.SIGKILL]:
            os.kill(command, number)
    _, status = os.waitpid(command, 0)
    with suppress(OSError):
        link.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _import_all() -> None:
    """Import what commands import when they run."""
    import kopf  # noqa: F401, PLC0415 - a part of every start of the operators

    import koord.cli  # noqa: PLC0415
    from koord.cli.main import COMMANDS  # noqa: PLC0415

    for module in pkgutil.iter_modules(koord.cli.__path__, "koord.cli."):
        import_module(module.name)
    for command in COMMANDS.values():
        if command.module:
            import_module(command.module)


if __name__ == "__main__":
    _import_all()
    gc.freeze()
    if serve(sys.argv[1]):
        from koord.cli.main import main

        main()
