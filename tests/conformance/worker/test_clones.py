"""Cloned machines: a fresh heartbeat outweighs a process id."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import update

from redrive.ledger import Ledger, NewJob
from redrive.ledger.db.clock import now_on
from redrive.ledger.db.tables import worker as workers
from redrive.ledger.jobs.workers import RETENTION
from redrive.worker.processes.identity import process_identity
from redrive.worker.worker import Worker

from .world import kind, until, wait_for_jobs


@pytest.mark.req("L-3")
@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="only Linux says who a process is")
def test_a_worker_with_a_fresh_heartbeat_is_not_taken_for_dead(shared: Ledger) -> None:
    mine = process_identity()
    assert mine is not None
    job_id = shared.submit(NewJob("mail", "long")).id
    shared.claim({"mail": 1}, worker="clone", lease=3600)
    shared.maintenance.heartbeat("clone", {"process": mine.rpartition("/")[0] + "/1", "lease": 3600})
    with Worker(shared, [kind("mail", lambda lease: None)]) as worker:
        until(lambda: worker.status.state == "working")  # it has checked other workers once by now
        wait_for_jobs(shared, shared.submit(NewJob("mail", "short")).id)
        held = shared.get(job_id)
        assert held is not None
        assert (held.state, held.crashes) == ("leased", 0)
        with shared.connections.write.use() as session, session.transaction("beat") as connection:
            long_ago = now_on(session) - RETENTION / 2
            connection.execute(update(workers).where(workers.c.name == "clone").values(seen_at=long_ago))
        (job,) = wait_for_jobs(shared, job_id)
        assert (job.state, job.crashes) == ("done", 1)
