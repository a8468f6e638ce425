"""Sessions of a pool: an unusable one is not reused."""

from __future__ import annotations

import pytest

from redrive.ledger import NewJob, open_ledger


@pytest.mark.req("L-1")
def test_a_connection_cut_inside_a_response_is_closed(postgres_db: str) -> None:
    with open_ledger(postgres_db, migrate=True) as ledger:
        with ledger.connections.write.use() as session:
            session.raw.pgconn.send_query(b"SELECT pg_sleep(0); SELECT 1")  # and its output is not read
        for number in range(3):
            ledger.submit_many([NewJob("mail", f"mail:ann:{number}:send:v1")])
        assert ledger.counts()["mail"].ready == 3
        assert session.raw.closed
