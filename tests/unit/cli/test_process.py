"""Commands as processes: at a terminal, in a pipe, after Ctrl+C, and with control characters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from redrive.ledger import Ledger, NewJob
from tests.unit.cli.command import PROGRAM, call, on_terminal, run
from tests.unit.cli.conftest import LONG


@pytest.mark.req("O-5")
def test_at_a_terminal_the_number_is_typed(url: str, busy: Ledger) -> None:
    asked = ("dead", "replay", "--kind", "crm.sync", "--error", "503", "--because", "fixed")
    status, printed = on_terminal(*asked, typed="3", REDRIVE_LEDGER=url)
    assert (status, "nothing was changed" in printed) == (1, True), printed
    assert len(busy.audit()) == 4
    status, printed = on_terminal(*asked, typed="2", REDRIVE_LEDGER=url)
    assert (status, "Dead letter 4 queued as job" in printed) == (0, True), printed
    assert [entry.because for entry in busy.audit(after=4)] == ["fixed"]


@pytest.mark.usefixtures("busy")
def test_a_number_too_large_for_the_database_is_bad_input(url: str) -> None:
    done = run("dead", "show", "9" * 30, REDRIVE_LEDGER=url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "redrive: number too large: the maximum is 9223372036854775807\n"


HOSTILE = "\x1b[2J\x1b]0;owned\x07 \x9b31m boo\u202eknird\r\nnext"


def test_control_characters_are_removed_from_the_output(url: str, ledger: Ledger) -> None:
    ledger.submit(NewJob("mail", "a", HOSTILE.encode(), headers={"x": HOSTILE}, ids={"y": HOSTILE}))
    ledger.settle(ledger.claim({"mail": 1}, worker="w")[0].dead(HOSTILE, error=HOSTILE, signature=HOSTILE))
    ledger.record(actor=HOSTILE, action="test", because=HOSTILE, what={"z": HOSTILE})
    for arguments in (
        ("dead", "list"),
        ("dead", "show", "1"),
        ("audit", "list"),
        ("dead", "show", "1", "--json"),
        ("audit", "list", "--json"),
    ):
        printed = run(*arguments, REDRIVE_LEDGER=url).stdout + on_terminal(*arguments, REDRIVE_LEDGER=url)[1].replace(
            "\r\n", "\n"
        )
        assert "boo" in printed
        for sign in ("\x1b]", "\x1b[2J", "\x9b", "\x07", "\u202e", "\r"):
            assert sign not in printed, (arguments, sign)


@pytest.mark.usefixtures("busy")
def test_output_in_a_pipe_has_no_colours_and_no_trailing_spaces(url: str) -> None:
    done = run("dead", "list", REDRIVE_LEDGER=url)
    assert (done.returncode, done.stderr) == (0, "")
    assert not any(line.endswith(" ") for line in done.stdout.splitlines())
    assert "\x1b[" not in done.stdout
    refused = run("dead", "replay", "--kind", "crm.sync", "--because", "x", REDRIVE_LEDGER=url)
    assert (refused.returncode, "confirmation: no interactive shell" in refused.stderr) == (2, True)
    line = f"'{sys.executable}' -c '{PROGRAM}' dead list --status all | head -1"
    piped = subprocess.run(line, shell=True, env=os.environ | {"REDRIVE_LEDGER": url}, capture_output=True, text=True)
    assert (piped.returncode, piped.stderr) == (0, "")


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("environment", [{"COLUMNS": "40"}, {"COLUMNS": "40", "FORCE_COLOR": "1"}, {}])
def test_output_in_a_pipe_is_not_cut_to_columns(url: str, environment: dict[str, str]) -> None:
    done = run("dead", "list", "--kind", LONG, REDRIVE_LEDGER=url, **environment)
    assert (done.returncode, "…" in done.stdout) == (0, False)
    assert LONG in done.stdout
    assert "the customer's credentials have expired" in done.stdout
    assert "@crm.example.com/v1/contacts" in done.stdout


def test_ctrl_c_leaves_the_rest_of_a_sweep_to_workers(url: str, ledger: Ledger) -> None:
    ledger.submit_many([NewJob("mail", f"{each}") for each in range(600)])
    ledger.settle([lease.dead("attempts") for lease in ledger.claim({"mail": 600}, worker="w")])
    slow = f"""if True:
        import time
        from redrive.ops.sweeps import SweepOperations
        quick = SweepOperations.carry_out
        def applied(*args, **options):
            for step in quick(*args, **options):
                yield step
                print("step", flush=True)
                time.sleep(0.5)
        SweepOperations.carry_out = applied
        {PROGRAM}
    """
    asked = ["dead", "discard", "--kind", "mail", "--limit", "600", "--because", "x", "--yes", "--max", "600"]
    with subprocess.Popen(
        [sys.executable, "-c", slow, *asked], env=os.environ | {"REDRIVE_LEDGER": url}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        while "step" not in process.stdout.readline():
            pass
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, "redrive sweeps resume 1" in said, "Traceback" in said) == (130, True, False), said
    left = len(ledger.dead_letters(status="pending", limit=1000))
    assert left % 100 == 0
    assert 0 < left < 600
    (stopped,) = ledger.sweeps.list()
    assert (stopped.state, stopped.made) == ("running", 600 - left)
    assert ledger.imbalance() == []
    assert call("sweeps", "resume", "1", "--because", "the train came through", REDRIVE_LEDGER=url)[0] == 0
    assert ledger.dead_letters(status="pending") == []
