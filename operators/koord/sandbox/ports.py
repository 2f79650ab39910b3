"""Free loopback ports that stay free until the component listens.

The usual way, bind to port 0 and close, leaves a gap in which somebody else may take the port.
Here the sockets stay bound, not listening, with SO_REUSEPORT; the components bind to the same
port with SO_REUSEPORT as well (the kernel allows it to processes of the same user), and only then
the sockets are closed. A bound socket that does not listen gets no connections.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def hold_ports(count: int) -> Iterator[list[int]]:
    """Hold so many different free ports while the block runs."""
    with ExitStack() as stack:
        held = [stack.enter_context(_bind()) for _ in range(count)]
        yield [port.getsockname()[1] for port in held]


def _bind() -> socket.socket:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    return held
