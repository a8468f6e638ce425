"""A ledger on Postgres that cannot be reached, in each framework: nothing runs unprotected, and nothing is reported as done."""

from __future__ import annotations

import threading
from urllib.parse import urlsplit

import pytest

from redrive import App
from tests.acceptance.idempotency.served import Answer
from tests.conformance.ledger.conftest import postgres_ledger, postgres_made  # noqa: F401  # the same database
from tests.servers.relay import Relay

from .shop import FRAMEWORKS, Shops
from .test_requests import record_of, until


@pytest.mark.req("I-4", "X-3")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_requests_fail_while_the_ledger_is_away(name: str, postgres_ledger: str, django_users: None, key: str) -> None:  # noqa: F811
    address = urlsplit(postgres_ledger)
    assert address.port is not None
    with Relay(address.port, host=address.hostname or "") as relay:
        url = address._replace(netloc=address.netloc.replace(f":{address.port}", f":{relay.port}")).geturl()
        with App(f"{url}?connect_timeout=2") as app:
            shops = Shops(FRAMEWORKS[name], app)
            world, client = shops.world, shops.serve()
            assert client.send("/charge", key=key).status == 201

            relay.lead_to(1)  # no server is there
            relay.drop()
            other = key[:-1] + '-other"'
            assert client.send("/charge", key=other).status == 500
            assert len(world.calls) == 1, "a request that cannot be protected does not run"
            relay.lead_to(address.port)
            assert client.send("/charge", key=key).replayed
            assert client.send("/charge", key=other).status == 201

            third = key[:-1] + '-third"'
            world.go.clear()
            answers: list[Answer] = []
            request = threading.Thread(target=lambda: answers.append(client.send("/charge", key=third)))
            request.start()
            until(lambda: len(world.calls) == 3)
            relay.lead_to(1)
            relay.drop()
            world.go.set()
            request.join(60)
            assert [answer.status for answer in answers] == [500], "a response that is not stored is not sent"
            relay.lead_to(address.port)
            busy = client.send("/charge", key=third)
            assert busy.status == 409, "the work may be done: its lease expires first"
            record = record_of(app, third)
            assert record is not None
            assert record.status == "processing"
            shops.close()
