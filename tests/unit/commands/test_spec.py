"""Options of commands are checked when a function is decorated."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from redrive import App, Command, Key, RetryPolicy, retry
from redrive.commands.command import AsyncCommand, SyncCommand, TransactionalCommand


@pytest.fixture
def app() -> App:
    return App("sqlite://")


def plain(order_id: str, user: str = "") -> str:
    return order_id


async def later(order_id: str) -> None: ...


def nothing() -> None: ...


def in_tx(tx: Any, order_id: str) -> None: ...


def generator(order_id: str) -> Any:
    yield order_id


def unstorable(callback: Callable[[], None]) -> None: ...


def unannotated(order_id) -> None: ...  # type: ignore[no-untyped-def]


def bad_result() -> Callable[[], None]:
    return print


async def async_tx(tx: Any) -> None: ...


class Shop:
    def send(self, order_id: str) -> None: ...


@pytest.mark.parametrize(
    ("fn", "options", "error", "says"),
    [
        (plain, {"key": "shop:{usr}:{order_id}:r:v1"}, ValueError, "names 'usr', but plain has order_id, user"),
        (plain, {"key": "shop:{order_id}"}, ValueError, "a key has at least 5 parts"),
        (plain, {"key": 5}, TypeError, "key= must be a template"),
        (plain, {"retry": 5}, TypeError, r"x: retry= must be a RetryPolicy, a Retry \(from `retry\(...\)`\) or None, not 5"),
        (plain, {"retry": retry(key="shop:u:o:r:v1")}, TypeError, "retry= has key=, which is only for calls in process"),
        (plain, {"retry": retry(spill=lambda _: None)}, TypeError, "retry= has spill="),
        (plain, {"retry": retry(reject=bool)}, TypeError, "retry= has reject=.* here it is an error that the function raises"),
        (plain, {"concurrency": 0}, ValueError, "concurrency must be at least 1: 0"),
        (plain, {"concurrency": 1.5}, TypeError, "concurrency must be a whole number"),
        (plain, {"rate": 0}, ValueError, "rate must be a number of starts per second, above 0: 0"),
        (plain, {"rate": "5/min"}, TypeError, "rate must be a number"),
        (plain, {"rate": float("nan")}, ValueError, "rate must be a finite number"),
        (plain, {"priority": 3}, ValueError, r"priority must be a whole number from -2 \(first\) to 2 \(last\), not 3"),
        (plain, {"spent": "lost"}, ValueError, "spent= must be 'dead' or 'blocked', not 'lost'"),
        (plain, {"cron": "0 2 * * *"}, TypeError, "a scheduled command is called without arguments; .* defaults: order_id"),
        (nothing, {"cron": "0 2 * *"}, ValueError, "needs five fields"),
        (nothing, {"cron": "0 2 * * *", "timezone": "Mars/Base"}, ValueError, "is not a time zone"),
        (nothing, {"cron": "0 2 * * *", "key": "shop:u:o:r:v1"}, TypeError, "a scheduled command gets its key from its name"),
        (nothing, {"timezone": "Europe/Prague"}, TypeError, "timezone= needs cron="),
        (nothing, {"in_transaction": True}, TypeError, "parameter of .*nothing is the connection; it has no parameters"),
        (plain, {"in_transaction": True}, TypeError, "a connection first; annotate 'order_id' as one"),
        (in_tx, {"in_transaction": True, "cron": "0 2 * * *"}, TypeError, "cron= and in_transaction= cannot be combined"),
        (async_tx, {"in_transaction": True}, TypeError, "is async, and its transaction would stay open"),
        (generator, {}, TypeError, "is a generator, which has no single result"),
        (unstorable, {}, TypeError, "unstorable: the parameter 'callback': .* cannot be stored"),
        (unannotated, {}, TypeError, "the parameter 'order_id' has no annotation"),
        (bad_result, {}, TypeError, "bad_result: its result cannot be stored"),
        (Shop.send, {}, TypeError, "self cannot be stored; use a function"),
        (Shop, {}, TypeError, "must decorate a function"),
        (staticmethod(plain), {}, TypeError, "must decorate a function"),
        (5, {}, TypeError, "must decorate a function"),
    ],
)  # fmt: skip
def test_invalid_options_are_rejected(app: App, fn: Any, options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        app.command("x", **options)(fn)
    with pytest.raises(ValueError, match="are registered; list their modules"):
        app.kinds()


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("", ValueError, "a command's name must be printable and not empty"),
        ("a\nb", ValueError, "must be printable"),
        ("a::b", ValueError, "has an empty piece"),
        ("x" * 300, ValueError, "must not be longer than 200 bytes"),
        (5, TypeError, "must be text"),
        (plain, TypeError, "a command needs a name, which the ledger stores; write @app.command"),
    ],
)
def test_names_of_commands_are_validated(app: App, name: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        app.command(name)  # immediately, because a decorator without a name is not called again


def test_a_name_is_registered_once(app: App) -> None:
    app.command("send")(plain)
    with pytest.raises(
        ValueError, match=r"command 'send' is already registered by .*test_spec\.plain; use another name for .*\.nothing"
    ):
        app.command("send")(nothing)
    assert [kind.name for kind in app.kinds()] == ["send"]


def test_a_prompt_may_register_a_name_again(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    app.command("send")(plain)
    app.command("send")(nothing)
    assert app.kinds()[0].run is not None


def test_the_function_decides_the_execution(app: App) -> None:
    made: list[Command[..., Any]] = [
        app.command("a")(plain), app.command("b")(later), app.command("c", in_transaction=True)(in_tx),
    ]  # fmt: skip
    assert [type(one) for one in made] == [SyncCommand, AsyncCommand, TransactionalCommand]
    assert [kind.execution for kind in app.kinds()] == ["thread", "async", "transaction"]
    assert (made[0].__name__, made[0].name, made[0].__wrapped__) == ("plain", "a", plain)  # type: ignore[attr-defined]
    assert repr(made[0]) == "<SyncCommand a tests.unit.commands.test_spec.plain>"


def test_a_call_runs_the_function(app: App) -> None:
    import asyncio

    assert app.command("a")(plain)("o") == "o"
    assert asyncio.run(app.command("b")(later)("o")) is None
    app.command("c", in_transaction=True)(in_tx)(None, "o")  # type: ignore[arg-type]
    assert not app.opener.is_open, "nothing was opened"


def test_the_default_policy_is_durable(app: App) -> None:
    app.command("a")(plain)
    app.command("b", retry=RetryPolicy(max_attempts=2, backoff_base=7, jitter=0))(nothing)
    settings = app.kinds()[0].settings
    assert settings.max_attempts == 5
    assert [settings.backoff(attempt, 0.5) for attempt in range(1, 5)] == [5, 30, 120, 600]
    assert settings.attempt_timeout is None
    assert app.kinds()[1].settings.backoff(2, 0.0) == 14
    assert app.kinds()[1].settings.attempt_timeout is None


def test_only_limits_the_job_types_of_a_worker(app: App) -> None:
    app.command("a")(plain)
    app.command("b")(nothing)
    assert [kind.name for kind in app.kinds(["b"])] == ["b"]
    with pytest.raises(ValueError, match="'c' is not registered; registered: a, b"):
        app.kinds(["c"])
    with pytest.raises(TypeError, match="only must be a collection of names"):
        app.kinds("a")


def test_using_is_checked_and_copies(app: App) -> None:
    send = app.command("a", key="shop:{user}:{order_id}:r:v1")(plain)
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    urgent = send.using(priority=-2, delay=timedelta(minutes=5))
    assert send.bind("o").job.priority == 0
    assert (urgent.bind("o").job.priority, urgent.bind("o").job.delay) == (-2, 300.0)
    assert urgent.using(due=noon).bind("o").job[4:6] == (0.0, noon)
    assert send.using(due=noon).using(delay=1).bind("o").job[4:6] == (1.0, None)
    assert send.using(key=Key("a", "b", "c", "d")).bind("o").job.key == "a:b:c:d:v1"
    with pytest.raises(TypeError, match="pass delay= or due=, not both"):
        send.using(delay=1, due=noon)
    with pytest.raises(ValueError, match="a key has at least 5 parts"):
        send.using(key="k")
    with pytest.raises(ValueError, match="due= needs a time zone"):
        send.using(due=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(TypeError, match="deadline= must be a datetime"):
        send.using(deadline=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"pass it to app.submit_many"):
        send.using(tx=object()).bind("o")  # type: ignore[arg-type]


def test_keys_are_checked(app: App) -> None:
    """By template or by function. Without either every submission is a separate job, whose key expires."""
    by_template = app.command("a", key="shop:{user}:{order_id}:r:v1")(plain).bind("o:1", user="ann").job
    by_function = app.command("b", key=lambda order_id: Key("shop", "", order_id, "later"))(later).bind("o").job
    alone = app.command("c")(nothing)
    assert (by_template.key, by_template.keep) == ("shop:ann:o%3A1:r:v1", None)
    assert (by_function.key, by_function.keep) == ("shop::o:later:v1", None)
    first, second = alone.bind().job, alone.bind().job
    assert first.key != second.key
    assert Key.parse(first.key).operation == "c"
    assert first.keep == 86_400


def test_arguments_are_those_of_the_function(app: App) -> None:
    send = app.command("a")(plain)
    assert send.bind("o", user="ann").job.payload == b'{"order_id":"o","user":"ann"}'
    for command in (send, app.command("b", key="shop:{user}:{order_id}:r:v1")(plain)):
        with pytest.raises(TypeError, match=r"^plain: missing a required argument: 'order_id'; it takes \(order_id: "):
            command.submit()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="plain: the argument 'order_id'"):
        send.submit(3)  # type: ignore[arg-type]


def test_submit_many_takes_bound_work_of_this_app(app: App) -> None:
    send = app.command("a")(plain)
    jobs = app.submit_many(send.bind(str(n)) for n in range(3))
    assert [job.id for job in jobs] == ["1", "2", "3"]
    assert app.submit_many([]) == []
    with pytest.raises(TypeError, match=r"submit_many takes results of `command.bind\(...\)`, not Job"):
        app.submit_many([send.submit("o")])  # type: ignore[list-item]
    other = App("sqlite://").command("a")(plain)
    with pytest.raises(ValueError, match="a is a command of another App; submit it there"):
        app.submit_many([other.bind("o")])
    app.close()


def test_include_is_imported_for_job_types(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "included_shop.py").write_text(
        "from included_app import app\n@app.command('shop.send')\ndef send() -> None: ...\n"
    )
    (tmp_path / "included_app.py").write_text("from redrive import App\napp = App('sqlite://', include=['included_shop'])\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import included_app  # type: ignore[import-not-found]

    assert "included_shop" not in sys.modules
    assert [kind.name for kind in included_app.app.kinds()] == ["shop.send"]
    with pytest.raises(TypeError, match=r"include must be a list of modules, not one text; pass \['shop'\]"):
        App("sqlite://", include="shop")
