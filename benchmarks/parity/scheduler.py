"""A kube-scheduler that reports the feasible nodes of pods, and never binds one.

It runs with its default plugins and one extender: us. After its own filters it asks the extender
about the nodes that are left, so that one question tells its whole feasible set. All of them are
refused then: nothing is ever bound, and no two questions disturb each other. A pod for which it has
no node at all is reported in its status instead.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.parity.cases import SCHEDULER
from koord_sandbox import Component, Sandbox
from koord_sandbox.binaries import find_binaries


class Extender:
    """Answers kube-scheduler on a loopback port, and records its requests."""

    def __init__(self) -> None:
        self.asked: dict[str, frozenset[str]] = {}
        """Pod uid -> the nodes that passed kube-scheduler's own filters."""
        extender = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                names = body.get("NodeNames") or body.get("nodenames") or []
                pod = body.get("Pod") or body.get("pod")
                extender.asked[pod["metadata"]["uid"]] = frozenset(names)
                answer = {"NodeNames": [], "FailedNodes": dict.fromkeys(names, "only asked")}
                payload = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()


@contextlib.contextmanager
def running_scheduler(box: Sandbox, extender: Extender) -> Iterator[None]:
    """Run a kube-scheduler of our own beside the sandbox's API server."""
    binary = find_binaries([Component.SCHEDULER], lambda *_: None).path(Component.SCHEDULER)
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(box.kubeconfig), "qps": 1000, "burst": 2000},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "podInitialBackoffSeconds": 1,
        "profiles": [{"schedulerName": SCHEDULER}],
        "extenders": [
            {"urlPrefix": extender.url, "filterVerb": "filter", "nodeCacheCapable": True}
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        path, log = Path(folder) / "config.json", Path(folder) / "log"
        path.write_text(json.dumps(config))
        with log.open("wb") as output:
            command = [str(binary), f"--config={path}", "--secure-port=0"]
            process = subprocess.Popen(command, stdout=output, stderr=output)
            try:
                yield
                if process.poll() is not None:
                    print(log.read_text()[-3000:], file=sys.stderr)
            finally:
                process.terminate()
                process.wait(30)
