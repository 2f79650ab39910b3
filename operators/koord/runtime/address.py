"""Where a process listens. Knows no configuration: the device agent has none."""

from dataclasses import dataclass
from ipaddress import ip_address


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address and a port to listen on; port 0 lets the system choose.

    With ``or_free`` any free port will do where this one is taken: nobody has chosen it.
    """

    host: str
    port: int
    or_free: bool = False

    @property
    def text(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: object) -> Address:
    """Parse ``127.0.0.1:8080`` or ``[::1]:8080``; raise ValueError for anything else."""
    host, _, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ValueError("is not ADDRESS:PORT, such as 127.0.0.1:8080")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return Address(str(ip_address(host)), int(port))
