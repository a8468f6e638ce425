"""The base install needs the standard library only, and importing it opens nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.architecture.imports import SRC, modules, unit
from tests.architecture.layers import FOREIGN

# Modules that work without any extra. The command is one of them, because it names the extra to install.
BASE = [
    module
    for module in modules()
    if unit(module) in {"", "errors", "backoff", "core", "journal", "engine", "analysis"}
    and module.removeprefix("redrive.") not in FOREIGN
] + ["redrive.cli"]


def bare(program: str, *arguments: str) -> str:
    """Run a program on a Python with only the standard library and src/."""
    start = f"import sys; sys.path.insert(0, {str(SRC)!r})\n"
    command = [sys.executable, "-I", "-S", "-B", "-W", "error", "-c", start + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


IMPORT_ALL = """
import importlib, traceback
for module in sys.argv[1:]:
    try:
        importlib.import_module(module)
    except ImportError:
        print(module, traceback.format_exc())
"""


def test_the_base_package_needs_only_the_standard_library() -> None:
    assert bare(IMPORT_ALL, *BASE) == ""


def test_a_third_party_import_is_detected() -> None:
    assert "No module named 'pytest'" in bare(IMPORT_ALL, "pytest")


WATCH = """
import _thread, json, os
seen = []
def hook(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        reads_code = str(path).endswith((".py", ".pyc")) and not flags & (os.O_WRONLY | os.O_RDWR)
        if not reads_code:
            seen.append(f"open {path}")
    elif event.startswith(("socket.", "subprocess.", "os.system", "os.fork", "os.exec", "sqlite3.", "_thread.start")):
        seen.append(event)
sys.addaudithook(hook)
before = set(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else set()
exec(sys.argv[1])
after = set(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else set()
seen += ["a thread is left running"] * _thread._count()
seen += [f"descriptor {fd} is left open" for fd in after - before]
print(json.dumps(seen))
"""
EVERYTHING = "import redrive\nfor name in getattr(redrive, '__all__', ()): getattr(redrive, name)"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            "from redrive import App; App('sqlite:///shop.db')",
            'a ledger needs SQLAlchemy and Alembic: pip install "redrive[ledger]"',
        ),
        ("from redrive.batch import TableItems", 'redrive.batch.TableItems needs sqlalchemy: pip install "redrive[ledger]"'),
        (
            "from redrive.testing import GrpcFaultServer",
            'redrive.testing.GrpcFaultServer needs grpc: pip install "redrive[grpc]"',
        ),
        ("from redrive.grpc import Interceptor", 'redrive.grpc.Interceptor needs grpc: pip install "redrive[grpc]"'),
        ("from redrive.console import OIDC", 'redrive.console.OIDC needs authlib: pip install "redrive[oidc]"'),
        ("from redrive.console import asgi; asgi(None)", 'console.asgi needs fastapi: pip install "redrive[console]"'),
        (
            "from redrive.messages import RedisStream; RedisStream('redis://localhost', 'orders', group='shop').connect()",
            'RedisStream needs redis-py: pip install "redrive[redis]"',
        ),
        (
            "from redrive.messages import KafkaTopic; KafkaTopic('kafka://localhost', 'orders', group='shop').connect()",
            'KafkaTopic needs confluent-kafka: pip install "redrive[kafka]"',
        ),
        (
            "from redrive.messages import NatsStream; NatsStream('nats://localhost', 'orders', consumer='shop').connect()",
            'NatsStream needs nats-py: pip install "redrive[nats]"',
        ),
        (
            "from redrive.messages import RabbitQueue; RabbitQueue('amqp://localhost', 'orders').connect()",
            'RabbitQueue needs aio-pika: pip install "redrive[rabbitmq]"',
        ),
    ],
)
def test_a_missing_extra_is_named(program: str, message: str) -> None:
    assert message in bare(f"try:\n    {program}\nexcept Exception as error:\n    print(error)")


@pytest.mark.parametrize("program", ["import redrive", EVERYTHING], ids=["import", "every name"])
def test_importing_opens_no_files_or_connections(program: str) -> None:
    assert json.loads(bare(WATCH, program)) == []


@pytest.mark.parametrize(
    "program",
    [
        "open('/dev/null')",
        "import socket; socket.socket()",
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
    ],
)
def test_the_import_watch_detects_side_effects(program: str) -> None:
    assert json.loads(bare(WATCH, program)) != []
