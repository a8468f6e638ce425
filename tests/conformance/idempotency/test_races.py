"""Threads and processes race for one key, and the effect happens once."""

from __future__ import annotations

import json
import signal
import threading
import time
from contextlib import ExitStack

import pytest
from sqlalchemy import Connection, text

from redrive import App
from redrive.errors import KeyBusy
from tests.conformance.idempotency.world import age_keys, effect_table, effects, process

RACE = """
import json, sys
from sqlalchemy import text
from redrive import App
from redrive.errors import KeyBusy
app = App(sys.argv[1])
in_transaction = sys.argv[2] == "True"

def write(tx):
    tx.execute(text("INSERT INTO effect VALUES ('x')"))

if in_transaction:
    @app.once("race:u:{n}:go:v1", in_transaction=True, wait=30)
    def go(tx, n: int) -> int:
        write(tx)
        return n
else:
    @app.once("race:u:{n}:go:v1", wait=30)
    def go(n: int) -> int:
        with app.ledger.begin() as tx:
            write(tx)
        return n

app.keys()
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps([go(n) for n in range(20)]), flush=True)
"""


@pytest.mark.req("I-5")
@pytest.mark.parametrize("in_transaction", [False, True], ids=["leased", "in_transaction"])
def test_racing_processes_have_one_effect_for_each_key(app: App, url: str, in_transaction: bool) -> None:
    effect_table(app)
    with ExitStack() as stack:
        racers = [stack.enter_context(process(RACE, url, str(in_transaction))) for _ in range(4)]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n", racer.stderr and racer.stderr.read()
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        for racer in racers:
            out, err = racer.communicate(timeout=120)
            assert racer.returncode == 0, err
            assert json.loads(out) == list(range(20))
    assert effects(app) == 20
    assert {record.status for record in app.keys().page()} == {"completed"}


@pytest.mark.req("I-5")
@pytest.mark.parametrize("in_transaction", [False, True], ids=["leased", "in_transaction"])
def test_racing_threads_have_one_effect(app: App, in_transaction: bool) -> None:
    effect_table(app)
    ran: list[int] = []

    @app.once("race:u:{n}:go:v1", wait=30)
    def leased(n: int) -> int:
        ran.append(n)
        time.sleep(0.01)
        return n

    @app.once("race:u:{n}:go:v1", wait=30, in_transaction=True)
    def in_tx(tx: Connection, n: int) -> int:
        tx.execute(text("INSERT INTO effect VALUES ('x')"))
        ran.append(n)
        return n

    answers: list[int] = []
    start = threading.Barrier(6)

    def racer() -> None:
        start.wait()
        answers.extend((in_tx if in_transaction else leased)(n) for n in range(5))

    threads = [threading.Thread(target=racer) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == sorted(list(range(5)) * 6)
    assert sorted(ran) == list(range(5))


ZOMBIE = """
import sys, time
from redrive import App
from redrive.errors import LeaseLost
app = App(sys.argv[1])

@app.once("race:u:{n}:go:v1")
def go(n: int) -> int:
    print("inside", flush=True)
    sys.stdin.readline()
    return 1

try:
    go(1)
except LeaseLost as lost:
    print("lost", flush=True)
"""


@pytest.mark.req("I-2", "I-3")
def test_a_stopped_process_is_fenced(app: App, url: str) -> None:
    @app.once("race:u:{n}:go:v1")
    def go(n: int) -> int:
        return 2

    app.keys()
    with process(ZOMBIE, url) as zombie:
        assert zombie.stdout is not None
        assert zombie.stdout.readline() == "inside\n", zombie.stderr and zombie.stderr.read()
        with pytest.raises(KeyBusy):
            go(1)
        zombie.send_signal(signal.SIGSTOP)
        age_keys(app, lease=3600)
        assert go(1) == 2
        zombie.send_signal(signal.SIGCONT)
        out, err = zombie.communicate("on\n", timeout=60)
        assert out == "lost\n", err
    assert go(1) == 2


FORK = """
import os, sys, threading, time
from redrive import App
app = App(sys.argv[1])

@app.once("race:u:{n}:go:v1", wait=30)
def go(n: int, seconds: float = 0.0) -> int:
    time.sleep(seconds)
    return n

app.keys()
holder = threading.Thread(target=go, args=(1, 1.0))
holder.start()
time.sleep(0.3)
child = os.fork()
if child == 0:
    assert threading.active_count() == 1
    assert go(2) == 2
    assert go(1, 1.0) == 1
    os._exit(0)
_, status = os.waitpid(child, 0)
holder.join()
assert go(2) == 2
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_can_use_keys(app: App, url: str) -> None:
    app.keys()
    with process(FORK, url) as parent:
        _, err = parent.communicate(timeout=60)
        assert parent.returncode == 0, err
