"""`tenant=` and `sequence=` of a command: templates and limits (Q-6, Q-7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from redrive import App


@pytest.fixture
def app() -> Iterator[App]:
    with App("sqlite://", migrate=True) as opened:
        yield opened


def register(app: App, **options: Any) -> Any:
    """Register a command with these options."""

    def send(order: str, user: str | None = None) -> None: ...

    return app.command("mail.send", **options)(send)


@pytest.mark.req("Q-6", "Q-7")
def test_a_job_gets_its_tenant_and_sequence(app: App) -> None:
    send = register(app, tenant="{user}", sequence="{user}/{order}")
    job = app.ledger.get(int(send.submit("o-1", "ann").id))
    assert job is not None
    assert (job.tenant, job.sequence) == ("ann", "ann/o-1")


@pytest.mark.req("Q-6")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tenant": "{customer}"}, "names 'customer', but .*send has order, user"),
        ({"tenant": "user"}, "names no parameter"),
        ({"tenant": "{user!r}"}, "write {name}"),
        ({"tenant": "{user"}, "tenant="),
        ({"tenant": "{user}", "tenant_concurrency": 0}, "tenant_concurrency"),
        ({"tenant": "{user}", "tenant_concurrency": -1}, "tenant_concurrency"),
        ({"tenant": "{user}", "tenant_rate": 0}, "tenant_rate"),
        ({"tenant": "{user}", "tenant_rate": -2.0}, "tenant_rate"),
        ({"tenant": "{user.id}"}, r"{user.id} cannot be read, because 'user' is str; write {user}"),
        ({"sequence": "{account}"}, "names 'account'"),
        ({"sequence": "{order.account}"}, r"{order.account} cannot be read, because 'order' is str; write {order}"),
        ({"sequence": ""}, "sequence= is empty"),
        ({"sequence": "user"}, "is the name of a parameter without braces.*write '{user}'"),
    ],
)
def test_an_invalid_option_is_rejected_at_registration(app: App, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        register(app, **options)


@pytest.mark.req("Q-6")
def test_limits_of_tenants_need_a_tenant(app: App) -> None:
    with pytest.raises(TypeError, match="need tenant="):
        register(app, tenant_concurrency=2)
    with pytest.raises(TypeError, match="must be a template"):
        register(app, tenant=5)


@pytest.mark.req("Q-6", "Q-7")
@pytest.mark.parametrize("user", [None, ""])
def test_a_missing_argument_is_an_error_and_nothing_is_stored(app: App, user: str | None) -> None:
    send = register(app, tenant="{user}")
    with pytest.raises(ValueError, match=r"mail.send: tenant=: \{user\} is"):
        send.submit("o-1", user)
    assert app.ledger.counts() == {}


@pytest.mark.req("Q-6", "Q-7")
@pytest.mark.parametrize("option", ["tenant", "sequence"])
def test_a_schedule_has_neither_tenant_nor_sequence(app: App, option: str) -> None:
    def send(user: str = "ann") -> None: ...

    with pytest.raises(TypeError, match=f"mail.send: cron= and {option}= cannot be combined"):
        app.command("mail.send", cron="@daily", **{option: "{user}"})(send)  # type: ignore[call-overload]


@pytest.mark.req("Q-7")
def test_a_constant_sequence_is_accepted(app: App) -> None:
    job = app.ledger.get(int(register(app, sequence="all").submit("o-1").id))
    assert job is not None
    assert job.sequence == "all"


@pytest.mark.req("Q-7")
def test_an_argument_without_the_attribute_is_an_error(app: App) -> None:
    def send(order: Any) -> None: ...

    command = app.command("mail.send", sequence="{order.account}")(send)
    with pytest.raises(TypeError, match=r"mail.send: sequence=: \{order.account\} cannot be read from str"):
        command.submit("o-1")
