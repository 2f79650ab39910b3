"""Writes to the API server as whoever asks, with her token and with nothing else.

So the rights, the admission policies and the audit log of Kubernetes see her, and none of this
process, which has no right to write. Knows no HTTP of ours, and not what is written.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from koord.kube.client import Client
from koord.kube.config import Credentials
from koord.kube.errors import ConfigError

USER_AGENT: Final = "koord-serve"


@asynccontextmanager
async def open_as(credentials: Credentials, token: str) -> AsyncIterator[Client]:
    """Open a client to the server of ``credentials`` that is known there by ``token`` alone.

    Raises ``ConfigError``, also where the connection itself would say who this process is.
    """
    access = await credentials.current()
    if access.client_files is not None:
        # The API server looks at a certificate of the connection before it looks at a token.
        raise ConfigError("koord serve has a client certificate: give it a token instead")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError("there is no token of the user")
    signed = replace(access, authorization=f"Bearer {token}")
    async with Client(Credentials(lambda: signed), user_agent=USER_AGENT) as client:
        yield client
