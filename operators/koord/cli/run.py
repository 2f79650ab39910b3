"""``koord run``: starts the operators. Only their command line; the rest is ``koord.runtime``."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from koord.api import Compat
from koord.cli.common import say_error
from koord.kube.config import find_credentials
from koord.kube.election import LeadershipLost
from koord.kube.errors import KubeError
from koord.kube.lease import NoNamespace
from koord.replay.leader import encode_cycle
from koord.runtime.address import Address, parse_address
from koord.runtime.app import Options, run_operators
from koord.runtime.discovery import NotInstalled
from koord.runtime.election import EXIT_LOST
from koord.runtime.http import CannotListen
from koord.runtime.logs import configure_logging
from koord.runtime.registry import OPERATORS
from koord.runtime.settings import (
    InvalidConfiguration,
    Settings,
    load_settings,
)
from koord.runtime.write_rights import WritesDenied

EXIT_USAGE = 2


def run(  # noqa: PLR0917 - typer calls it, by name
    operator: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Run only this operator; can be repeated. Operators: {', '.join(OPERATORS)}.",
            show_default="all in one process",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Configuration file (kind: OperatorConfiguration)."),
    ] = None,
    kubeconfig: Annotated[
        str,
        typer.Option(
            help="Kubeconfig file; in a pod, the ServiceAccount is used.", envvar="KUBECONFIG"
        ),
    ] = "",
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    http_address: Annotated[
        str,
        typer.Option(
            help="Address and port of metrics and health checks; port 0 takes any free one.",
            metavar="ADDRESS:PORT",
            show_default="as configured",
        ),
    ] = "",
    compat: Annotated[
        Compat | None,
        typer.Option(
            help="Follow Koordinator's behaviour where the two differ.",
            show_default="as configured",
        ),
    ] = None,
) -> None:
    """Run the operators until SIGTERM or Ctrl-C.

    Uses the rights of the kubeconfig. The custom resources must be installed first.

    For example:

      koord run

      koord run --operator podgroup --config operators.yaml

      koord run --http-address 127.0.0.1:0
    """
    chosen = operator or list(OPERATORS)
    unknown = sorted(set(chosen) - set(OPERATORS))
    if unknown:
        _fail(f"no operator is called {', '.join(unknown)}; operators are {', '.join(OPERATORS)}")
    try:
        settings = load_settings(config) if config else Settings()
        if compat is not None:
            settings = settings.model_copy(update={"compat": compat})
        if http_address:
            settings = settings.model_copy(update={"http_address": _parse_address(http_address)})
        credentials = find_credentials(kubeconfig, context)
    except (InvalidConfiguration, KubeError) as error:
        _fail(str(error))
    configure_logging(settings.log_format)
    _run(Options(credentials, settings, frozenset(chosen), encode_cycle))


def _parse_address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}", param_hint="--http-address") from error


def _run(options: Options) -> NoReturn:
    try:
        asyncio.run(run_operators(options))
    except (NotInstalled, NoNamespace, WritesDenied) as error:
        _fail(str(error))
    except CannotListen as error:
        _fail(f"{error}; choose another with --http-address, or port 0 for any free one")
    except LeadershipLost as error:
        _say(f"this process lost the leadership: {error}")
        _leave(EXIT_LOST)
    except KubeError as error:
        _fail(f"the cluster cannot be used: {error}", EXIT_LOST)
    _leave(0)


def _fail(message: str, status: int = EXIT_USAGE) -> NoReturn:
    _say(message)
    sys.exit(status)


def _say(message: str) -> None:
    say_error(message)


def _leave(status: int) -> NoReturn:
    """End at once: the interpreter would wait for threads of Kopf that retry their requests."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
