"""Temporal: the address, the options, and what an app does with them before it connects."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App, Temporal


@pytest.mark.req("E-9")
@pytest.mark.parametrize(
    ("address", "options", "says"),
    [
        ("http://localhost:7233", {}, "invalid address 'http://localhost:7233': use host:port"),
        ("localhost", {}, "invalid address 'localhost': use host:port, such as 'localhost:7233'"),
        ("localhost:7233", {"namespace": ""}, "namespace must be printable and not empty"),
        ("localhost:7233", {"heartbeat": 0.1}, "heartbeat must be at least 0.5 s: 0.1"),
        ("localhost:7233", {"api_key": "secret"}, "api_key= needs tls=True; pass both"),
    ],
)
def test_invalid_options_are_rejected_with_the_fix(address: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Temporal(address, **options)


def test_one_text_is_not_a_collection_of_commands() -> None:
    with pytest.raises(TypeError, match=r"on_ledger must be a collection of names, not one text; pass \['a'\]"):
        Temporal("localhost:7233", on_ledger="a")
    with pytest.raises(TypeError, match="engine= must be a Temporal"):
        App("sqlite://", engine="localhost:7233")  # type: ignore[arg-type]


def test_the_api_key_and_the_private_key_are_not_shown() -> None:
    from temporalio.service import TLSConfig

    assert "s3cret" not in repr(Temporal("localhost:7233", tls=True, api_key="s3cret"))
    assert "s3cret" not in repr(Temporal("localhost:7233", tls=TLSConfig(client_private_key=b"s3cret")))


def test_a_path_is_not_a_tls_configuration() -> None:
    with pytest.raises(TypeError, match="tls must be True, False or a TLSConfig, not str"):
        Temporal("localhost:7233", tls="ca.pem")  # type: ignore[arg-type]


def test_an_activity_id_has_the_queue_the_command_and_the_key() -> None:
    engine = Temporal("localhost:7233", task_queue="shop")
    assert engine.activity_id("receipts.send", "shop:ann:1:receipt:v1") == "shop/receipts.send/shop:ann:1:receipt:v1"
    long = [engine.activity_id("a", f"{'k' * 990}{number}") for number in range(2)]
    assert len(set(long)) == 2, "long keys stay different"
    assert max(map(len, long)) <= 900
    assert (engine.queue_of("thread"), engine.queue_of("async")) == ("shop", "shop-async")


@pytest.mark.req("E-9")
def test_commands_stay_on_the_ledger_if_temporal_cannot_keep_their_options() -> None:
    app = App("sqlite://", engine=Temporal("localhost:7233", on_ledger=["named"]))

    @app.command("plain")
    def plain(user: str) -> None: ...

    @app.command("fair", tenant="{user}")
    async def fair(user: str) -> None: ...

    @app.command("one", concurrency=1)
    def one(user: str) -> None: ...

    @app.command("slow", rate=2)
    def slow(user: str) -> None: ...

    @app.command("ordered", sequence="{user}")
    def ordered(user: str) -> None: ...

    @app.command("limited", tenant="{user}", tenant_rate=1)
    def limited(user: str) -> None: ...

    @app.command("paid", in_transaction=True)
    def paid(tx: Any, user: str) -> None: ...

    @app.command("named")
    def named(user: str) -> None: ...

    commands = app.commands
    specs = {name: commands.spec(name) for name in commands.names}
    on_temporal = [name for name, spec in specs.items() if spec is not None and commands.engine_of(spec) is not None]
    assert on_temporal == ["plain", "fair"]
    app.close()
