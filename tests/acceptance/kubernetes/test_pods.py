"""The pods of the rendered chart, run as processes on a real Postgres: their commands, variables, probes and signals."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.testing import FaultServer
from tests.acceptance.kubernetes.chart import EXAMPLE, SMALLEST, objects, pods, template
from tests.servers.process import free_port
from tests.zygote import warm

pytestmark = pytest.mark.req("X-7")
SOON = 120
SECRETS = {"owner-password": "x", "worker-password": "x", "console-db-password": "x", "console-password": "a-long-passw0rd"}


class Process:
    """The process of a container, with the variables that Kubernetes would set."""

    def __init__(self, container: dict[str, Any], folder: Path, **variables: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE_", "PG"))}
        for each in container["env"]:
            value = each.get("value")
            environment[each["name"]] = SECRETS[each["valueFrom"]["secretKeyRef"]["key"]] if value is None else value
        environment = {name: value.replace("/alerts/", f"{folder}/") for name, value in environment.items()} | variables
        self._output = folder / f"{container['name']}.log"
        self._pid = warm().fork(
            "tests.unit.cli.command", container["args"], output=self._output, folder=EXAMPLE, environment=environment
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if warm().ended(self._pid) is None:
            os.kill(self._pid, signal.SIGKILL)
            warm().wait(self._pid)

    def stop(self) -> None:
        os.kill(self._pid, signal.SIGTERM)

    def status(self, seconds: float) -> int | None:
        """Wait until the process has ended, and return its exit code."""
        until(lambda: warm().ended(self._pid) is not None, f"the end of {self._output.stem}", seconds)
        code = warm().ended(self._pid)
        if code:
            print(self._output.read_text())  # shown if the test fails
        return code


def is_probed(container: dict[str, Any], probe: str, port: int) -> bool:
    """Return whether a probe of Kubernetes would succeed."""
    path = container[probe]["httpGet"]["path"]
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


def until(condition: Callable[[], object], what: str, seconds: float = SOON) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_the_pods_run_as_the_chart_describes_them(postgres_db: str, tmp_path: Path) -> None:
    server = urlsplit(postgres_db)
    account = {"user": server.username, "passwordKey": "worker-password"}
    metrics, console = free_port(), free_port()
    values: dict[str, Any] = {
        "ledger__host": server.hostname, "ledger__port": server.port, "ledger__database": server.path.strip("/"),
        "ledger__parameters": server.query, "ledger__owner": account, "ledger__worker": account, "ledger__console": account,
        "worker__metricsPort": metrics, "watch__enabled": True, "watch__existingSecret": "redrive", "watch__slackKey": "slack",
    }  # fmt: skip
    found = tuple(objects(template(*SMALLEST, **values)))
    specs = {name.removeprefix("shop-redrive-"): pod for name, pod in pods(found)}
    of = {name: pod["containers"][0] for name, pod in specs.items()}
    job = NewJob("mail.send", "mail:ann:o-1:receipt:v1", json.dumps({"user": "ann", "order": "o-1"}).encode())
    with ExitStack() as stack:
        assert stack.enter_context(Process(of["migrate"], tmp_path)).status(SOON) == 0
        ledger = stack.enter_context(open_ledger(postgres_db))
        ledger.submit(NewJob("mail.lost", "mail:ann:o-2:lost:v1"))
        ledger.settle(ledger.claim({"mail.lost": 1}, worker="w")[0].dead("attempts"))
        slack = stack.enter_context(FaultServer(200))
        (tmp_path / "slack").write_text(f"{slack.url}/services/T/B/x\n")
        running = {
            name: stack.enter_context(Process(of[name], tmp_path, REDRIVE_CONSOLE_PORT=str(console)))
            for name in ("worker", "console", "watch", "test")
        }
        ledger.submit(job)
        for name, port in (("worker", metrics), ("console", console)):
            for probe in of[name].keys() & {"startupProbe", "readinessProbe", "livenessProbe"}:
                until(partial(is_probed, of[name], probe, port), f"{probe} of the {name}")
        until(lambda: is_done(ledger, job), "the job")
        until(lambda: slack.count, "the alert")
        assert "Dead letters: 1 waiting" in json.loads(slack.requests[0].body)["text"]
        assert running["test"].status(SOON) == 0
        for name in ("worker", "console", "watch"):
            running[name].stop()
        for name in ("worker", "console", "watch"):
            grace = specs[name].get("terminationGracePeriodSeconds", 30)
            assert running[name].status(grace) == 0, name


def is_done(ledger: Ledger, job: NewJob) -> bool:
    stored = ledger.find(job.kind, job.key)
    return stored is not None and stored.state == "done"
