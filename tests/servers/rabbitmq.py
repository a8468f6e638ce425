"""RabbitMQ for tests: `REDRIVE_TEST_RABBITMQ`, else an installed one, else Debian's packages, unpacked once into .cache.

A node starts as `rabbitmq-server` starts it, without its shell scripts, which expect Erlang in /usr. Each test run has an
`epmd` of its own, so that nodes of two runs, or of the machine, do not meet.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.servers.certificate import self_signed
from tests.servers.debian import fetch
from tests.servers.npm import CACHE
from tests.servers.process import ServerMissing, free_port, running, short_folder

VARIABLE = "REDRIVE_TEST_RABBITMQ"
HOW = f"install rabbitmq-server, or set {VARIABLE}=amqp://user:password@host:port"
USER, PASSWORD = "shop", "Word-of-the-shop"
COOKIE = "redrive"
PACKAGES = (
    "rabbitmq-server",
    *("erlang-asn1", "erlang-base", "erlang-crypto", "erlang-eldap", "erlang-inets", "erlang-mnesia", "erlang-os-mon"),
    *("erlang-parsetools", "erlang-public-key", "erlang-runtime-tools", "erlang-ssl", "erlang-syntax-tools", "erlang-tools"),
    "erlang-xmerl",
)
CONFIG = """
listeners.tcp.1 = 127.0.0.1:{port}
listeners.ssl.1 = 127.0.0.1:{tls_port}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {certificate}
default_user = {user}
default_pass = {password}
log.file = false
log.console = true
log.console.level = warning
disk_free_limit.absolute = 50MB
"""
PEERS = "cluster_formation.peer_discovery_backend = classic_config\n"
GREETING = b"AMQP\x00\x00\x09\x01"


class Installation(NamedTuple):
    """Erlang and RabbitMQ on this machine."""

    erlang: Path
    rabbitmq: Path

    @property
    def programs(self) -> Path:
        return next(self.erlang.glob("erts-*/bin"))


def bring() -> Path:
    """The folder with Erlang and RabbitMQ; fetched now if they are neither in .cache nor installed.

    Raises:
        ServerMissing: They cannot be fetched. The message has the output of apt.
    """
    home = CACHE / "rabbitmq"
    if home.is_dir():
        return home
    if shutil.which("rabbitmq-server") and shutil.which("erl"):
        return Path("/usr/lib")
    problem = fetch(home, PACKAGES, "usr/lib")
    if problem is not None and not home.is_dir():
        raise ServerMissing(f"{HOW} ({problem})")
    return home


def installation() -> Installation:
    """Return the folders of Erlang and RabbitMQ."""
    home = bring()
    found = sorted(home.glob("rabbitmq/lib/rabbitmq_server-*"))
    if not found or not (home / "erlang").is_dir():
        raise ServerMissing(f"{HOW} ({home} has no rabbitmq/lib and erlang)")
    return Installation(home / "erlang", found[-1])


class Node:
    """One node. It can be killed and started again, with its files."""

    def __init__(self, folder: Path, epmd: int, name: str = "rabbit", peers: tuple[str, ...] = ()) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.name, self.epmd, self.peers = f"{name}@localhost", epmd, peers
        self.home = installation()
        self.certificate = self_signed(self.folder)
        self.port, self.tls_port = 0, free_port()
        self._running = ExitStack()

    @property
    def url(self) -> str:
        """The address, with a user who has all rights."""
        return f"amqp://{USER}:{PASSWORD}@127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Start it, on the port of the first time."""
        port = self._running.enter_context(
            running(self._command, ready=answers, folder=self.folder, port=self.port or None, patience=2)
        )
        self.port = port

    def stop(self) -> None:
        self._running.close()

    def kill(self) -> None:
        """End the process immediately, like a power loss."""
        os.kill(int(self.evaluate("os:getpid().").strip('"')), signal.SIGKILL)
        self._running.close()

    def evaluate(self, expression: str) -> str:
        """Run an Erlang expression in the node, such as `rabbit_mnesia:status().`"""
        return evaluate(self.name, self.epmd, expression)

    def _command(self, port: int) -> list[str | Path]:
        config = CONFIG.format(
            port=port, tls_port=self.tls_port, certificate=self.certificate, user=USER, password=PASSWORD
        ) + "".join([PEERS, *(f"cluster_formation.classic_config.nodes.{n} = {peer}\n" for n, peer in enumerate(self.peers, 1))])
        (self.folder / "rabbitmq.conf").write_text(config)
        (self.folder / "plugins").write_text("[].")
        erlang, rabbitmq, programs = self.home.erlang, self.home.rabbitmq, self.home.programs
        variables = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": self.folder,
            "LC_ALL": "C.UTF-8",
            "ROOTDIR": erlang,
            "BINDIR": programs,
            "EMU": "beam",
            "PROGNAME": "erl",
            "ERL_EPMD_PORT": self.epmd,
            "ERL_LIBS": rabbitmq / "plugins",
            "ERL_MAX_PORTS": 4096,  # the default of machines without a limit takes a gigabyte
            "SYS_PREFIX": "",
            "RABBITMQ_HOME": rabbitmq,
            "RABBITMQ_SCRIPTS_DIR": rabbitmq / "sbin",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_DIST_PORT": free_port(),
            "RABBITMQ_MNESIA_BASE": self.folder / "data",
            "RABBITMQ_LOG_BASE": self.folder / "log",
            "RABBITMQ_CONFIG_FILE": self.folder / "rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": self.folder / "none.config",
            "RABBITMQ_CONF_ENV_FILE": self.folder / "none",
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.folder / "plugins",
            "RABBITMQ_PID_FILE": self.folder / "pid",
        }
        options = "-noinput -s rabbit boot -boot start_sasl +W w +Bd +sbwt none +sbwtdcpu none +sbwtdio none +P 100000"
        quiet = "-syslog logger [] -syslog syslog_error_logger false -kernel prevent_overlapping_partitions false"
        local = "-kernel inet_dist_use_interface {127,0,0,1}"
        words = [*options.split(), "-setcookie", COOKIE, *quiet.split(), *local.split()]
        return ["env", "-i", *(f"{name}={value}" for name, value in variables.items()), programs / "erlexec", *words]


def evaluate(name: str, epmd: int, expression: str) -> str:
    """Run an Erlang expression in a node, and return its value as text."""
    program = installation().erlang / "bin" / "erl_call"
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": "/", "ERL_EPMD_PORT": str(epmd)}
    command = [str(program), "-n", name, "-c", COOKIE, "-e"]
    # A string as the value: erl_call shows binaries as numbers.
    asked = f'lists:flatten(io_lib:format("~p", [begin {expression.rstrip(".")} end])).\n'
    done = subprocess.run(command, input=asked, env=environment, capture_output=True, text=True, timeout=30)
    if done.returncode or not done.stdout.startswith("{ok, "):
        raise RuntimeError(f"{expression}: {done.stdout}{done.stderr}")
    return done.stdout.strip()[6:-2].replace('\\"', '"')


def pending_of(queue: str) -> str:
    """The expression for the number of messages of a queue that were delivered and not acknowledged."""
    name = f'rabbit_misc:r(<<"/">>, queue, <<"{queue}">>)'
    count = "proplists:get_value(messages_unacknowledged, rabbit_amqqueue:info(Q, [messages_unacknowledged]))"
    return f"case rabbit_amqqueue:lookup({name}) of {{ok, Q}} -> {count}; _ -> 0 end"


def connections_of(queue: str, act: str = "P") -> str:
    """The expression for the number of connections of a queue's consumers. act: what to do with each of them."""
    name = 'begin [{_, T}] = rabbit_reader:info(P, [client_properties]), rabbit_misc:table_lookup(T, <<"connection_name">>) end'
    is_found = f'(catch {name}) =:= {{longstr, <<"redrive {queue}">>}}'
    return f"length([{act} || P <- rabbit_networking:connections(), {is_found}])"


def close_connections_of(queue: str) -> str:
    """The expression that closes the connections of a queue's consumers. Those of other tests stay open."""
    return connections_of(queue, 'rabbit_networking:close_connection(P, "tests")')


@contextmanager
def epmd() -> Iterator[int]:
    """Erlang's list of nodes for this run, with its port."""
    program = installation().programs / "epmd"
    with (
        short_folder() as folder,
        running(lambda port: [program, "-port", str(port), "-address", "127.0.0.1"], ready=listens, folder=folder) as port,
    ):
        yield port


@contextmanager
def node() -> Iterator[Node]:
    """A separate node, for tests that kill it."""
    with epmd() as port, short_folder() as folder:
        made = Node(folder, port)
        try:
            made.start()
            yield made
        finally:
            made.stop()


@contextmanager
def cluster(size: int = 3) -> Iterator[list[Node]]:
    """Nodes that know each other."""
    names = [f"rabbit{number}" for number in range(size)]
    peers = tuple(f"{name}@localhost" for name in names)
    with epmd() as port, short_folder() as folder, ExitStack() as stack:
        nodes = [Node(folder, port, name, peers) for name in names]
        for each in nodes:  # one after another: the first creates the cluster, and the others join it
            stack.callback(each.stop)
            each.start()
        yield nodes


@contextmanager
def rabbitmq_server() -> Iterator[str]:
    """Yield the running server as JSON: `url`, and the fields that a test needs to control it."""
    given = os.environ.get(VARIABLE)
    if given:
        yield json.dumps({"url": given})
        return
    with node() as made:
        secure = f"amqps://{USER}:{PASSWORD}@127.0.0.1:{made.tls_port}/"
        known = {"secure": secure, "certificate": str(made.certificate), "name": made.name, "epmd": made.epmd}
        yield json.dumps({"url": made.url, **known})


def listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def answers(port: int) -> bool:
    """Return whether a node sends the greeting of AMQP."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(GREETING)
            return connection.recv(16).startswith(b"\x01\x00\x00")
    except OSError:
        return False
