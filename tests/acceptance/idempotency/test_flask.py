"""The Flask extension: where it stands among the hooks of an application, and what it refuses at the start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flask
import flask_login
import pytest
import sqlalchemy
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.exc import IntegrityError, PendingRollbackError

from redrive import App
from redrive.errors import LedgerUnavailable
from redrive.flask import Idempotency
from redrive.flask.idempotency import check_version
from tests.ledgers import sqlite_ledger

pytestmark = pytest.mark.req("X-3")
KEY = {"Idempotency-Key": "k"}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(sqlite_ledger(tmp_path)) as opened:
        yield opened


class Shop(flask.Flask):
    """An application that counts the calls of its view."""

    def __init__(self) -> None:
        super().__init__("shop")
        self.secret_key = "x"
        self.calls = 0
        self.add_url_rule("/", view_func=self.charge, methods=["POST"])

    def charge(self) -> Any:
        self.calls += 1
        return {"number": self.calls}

    def hooks(self) -> list[Any]:
        return [self.wsgi_app, self.dispatch_request, dict(self.extensions)]


def test_the_user_may_come_from_any_before_request_function(app: App) -> None:
    """Also from those of a blueprint, and from those that were registered later."""
    shop = Shop()
    Idempotency(app, shop, user=lambda: flask.g.user)
    parts = flask.Blueprint("parts", "parts")
    parts.add_url_rule("/parts", view_func=shop.charge, methods=["POST"])

    @parts.before_request
    def authenticate() -> None:
        flask.g.user = flask.request.headers["x-user"]

    shop.register_blueprint(parts)
    client = shop.test_client()
    answers = [client.post("/parts", headers={**KEY, "x-user": name}) for name in ("ann", "bob", "ann")]
    assert [answer.json for answer in answers] == [{"number": 1}, {"number": 2}, {"number": 1}]


def test_a_request_that_a_hook_rejects_begins_no_key(app: App) -> None:
    shop = Shop()
    Idempotency(app, shop, user=lambda: "ann")

    @shop.before_request
    def reject() -> Any:
        return "no", 402

    assert shop.test_client().post("/", headers=KEY).status_code == 402
    assert app.keys().page() == []


def test_the_response_is_stored_after_the_hooks_of_the_application(app: App) -> None:
    """A commit in such a hook may fail. Its work is then not done, and must not be reported as done."""
    shop = Shop()
    Idempotency(app, shop, user=lambda: "ann")
    outcomes = iter([False, True])

    @shop.teardown_request
    def commit(error: BaseException | None) -> None:
        assert [record.status for record in app.keys().page()] == ["processing"]
        if not next(outcomes):
            raise OSError("commit failed")

    client = shop.test_client()
    with pytest.raises(OSError, match="commit failed"):
        client.post("/", headers=KEY)
    assert app.keys().page() == []
    assert client.post("/", headers=KEY).json == {"number": 2}
    assert [record.status for record in app.keys().page()] == ["completed"]


def test_a_replay_is_the_first_response_though_hooks_run_for_each_request(app: App) -> None:
    shop = Shop()
    Idempotency(app, shop, user=lambda: "ann")
    seen = []

    @shop.after_request
    def count(response: flask.Response) -> flask.Response:
        seen.append(response.status_code)
        response.headers.add("x-count", str(len(seen)))
        return response

    client = shop.test_client()
    answers = [client.post("/", headers=KEY) for _ in range(2)]
    assert [answer.headers.getlist("x-count") for answer in answers] == [["1"], ["1"]]
    assert client.post("/", data="other", headers=KEY).headers.getlist("x-count") == ["3"]  # such as CORS headers
    assert seen == [200, 200, 422]


def test_a_form_that_a_hook_has_parsed_is_compared(app: App) -> None:
    """Such as the hook of Flask-WTF. The body is read before."""
    shop = Shop()
    Idempotency(app, shop, user=lambda: "ann")
    shop.before_request(lambda: flask.request.form.get("csrf_token") and None)
    client = shop.test_client()
    statuses = [client.post("/", data={"cents": cents}, headers=KEY).status_code for cents in ("1", "1", "2")]
    assert statuses == [200, 200, 422]
    assert shop.calls == 1


def test_an_error_of_the_user_function_is_an_error_of_the_application(app: App) -> None:
    shop = Shop()
    Idempotency(app, shop, user=lambda: flask.abort(401))
    assert shop.test_client().post("/", headers=KEY).status_code == 401
    assert (shop.calls, app.keys().page()) == (0, [])


def test_a_ledger_that_is_away_is_an_error_that_the_application_can_handle() -> None:
    shop = Shop()
    with App("postgresql://127.0.0.1:1/shop?connect_timeout=1") as app:
        Idempotency(app, shop, user=lambda: "ann")
        shop.register_error_handler(LedgerUnavailable, lambda error: ("try later", 503))
        assert shop.test_client().post("/", headers=KEY).status_code == 503
    assert shop.calls == 0


def test_a_view_may_dispatch_once_more(app: App) -> None:
    shop = Shop()
    Idempotency(app, shop, user=lambda: "ann")

    @shop.post("/alias")
    def alias() -> Any:
        with shop.request_context({**flask.request.environ, "PATH_INFO": "/"}):
            return shop.full_dispatch_request()

    assert [shop.test_client().post("/alias", headers=KEY).json for _ in range(2)] == [{"number": 1}] * 2


def test_a_transaction_that_has_failed_stores_neither_a_job_nor_a_response(app: App) -> None:
    @app.command("receipts.send", key="shop:ann:{order}:receipt:v1")
    def send_receipt(order: str) -> None: ...

    shop = Shop()
    shop.config["SQLALCHEMY_DATABASE_URI"] = app.url
    db = SQLAlchemy(shop)
    Idempotency(app, shop, user=lambda: "ann")

    class Order(db.Model):  # type: ignore[name-defined,misc]
        id = sqlalchemy.Column(sqlalchemy.Integer, primary_key=True)

    @shop.post("/orders")
    def place_order() -> Any:
        try:
            db.session.add(Order(id=1))
            db.session.flush()
        except IntegrityError:
            pass  # and no rollback
        send_receipt.using(tx=db.session).submit("o-1")
        db.session.commit()
        return "placed"

    with shop.app_context():
        db.create_all()
        db.session.add(Order(id=1))
        db.session.commit()
    shop.testing = True
    with pytest.raises(PendingRollbackError):
        shop.test_client().post("/orders", headers=KEY)
    assert (app.ledger.jobs("ready"), app.keys().page()) == ([], [])
    with shop.app_context():
        db.engine.dispose()


def test_one_extension_serves_several_applications(app: App) -> None:
    shops = Shop(), Shop()
    extension = Idempotency(app, user=lambda: "ann")
    for shop in shops:
        extension.init_app(shop)
        assert [shop.test_client().post("/", headers=KEY).status_code for _ in range(2)] == [200, 200]
    assert [shop.calls for shop in shops] == [1, 0], "the keys of a domain are shared"


def test_a_replaced_wsgi_app_is_not_served_unprotected(app: App) -> None:
    shop = Shop()
    original = shop.wsgi_app
    Idempotency(app, shop, user=lambda: "ann")
    shop.wsgi_app = original  # type: ignore[method-assign]
    shop.testing = True
    with pytest.raises(RuntimeError, match="wsgi_app was replaced"):
        shop.test_client().post("/", headers=KEY)
    assert shop.test_client().post("/").status_code == 200


# ---- at the start


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((flask.Flask("shop"),), {}, "app must be a redrive.App, not Flask; pass Idempotency.app, flask_app"),
        ((), {"user": "ann"}, "user= must be a function that returns the caller"),
        ((), {"paths": "orders"}, "paths= must be a pattern of whole paths"),
        ((), {"keep": 0}, "keep must be above 0"),
        ((), {"requierd": True}, "unexpected keyword argument 'requierd'"),
    ],
)
def test_invalid_arguments_are_rejected(app: App, arguments: Any, options: Any, error: str) -> None:
    shop = Shop()
    before = shop.hooks()
    with pytest.raises((TypeError, ValueError), match=error):
        Idempotency(*(arguments or (app, shop)), **options)
    assert shop.hooks() == before


def test_other_applications_are_rejected(app: App) -> None:
    with pytest.raises(TypeError, match="flask_app must be a flask.Flask, not Blueprint; use app.wsgi_idempotency"):
        Idempotency(app, flask.Blueprint("parts", "parts"), user=None)  # type: ignore[arg-type]


def test_an_application_without_users_is_rejected(app: App) -> None:
    shop = Shop()
    before = shop.hooks()
    with pytest.raises(RuntimeError, match="the user of 'shop' is unknown, because it has no LoginManager; .* or pass user="):
        Idempotency(app, shop)
    assert shop.hooks() == before
    flask_login.LoginManager(shop)
    Idempotency(app, shop)
    with pytest.raises(RuntimeError, match="'shop' already has it"):
        Idempotency(app, shop)
    Idempotency(app, Shop(), user=None)


def test_old_versions_are_rejected() -> None:
    check_version("3.0.0")
    with pytest.raises(ImportError, match='^redrive.flask needs Flask 3.0 or later, not 2.3.3: pip install "redrive.flask."$'):
        check_version("2.3.3")


@pytest.mark.parametrize(
    ("missing", "code", "line"),
    [
        (
            "flask",
            "from redrive.flask import Idempotency",
            'ImportError: redrive.flask.Idempotency needs flask: pip install "redrive[flask]"',
        ),
        (
            "django",
            "from redrive.django import IdempotencyMiddleware",
            'ImportError: redrive.django needs Django: pip install "redrive[django]"',
        ),
    ],
)
def test_a_missing_extra_is_named(missing: str, code: str, line: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; {code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == line


def test_flask_login_is_optional(app: App) -> None:
    program = """
import sys
sys.modules["flask_login"] = None
import flask
from redrive import App
from redrive.errors import LedgerUnavailable
from redrive.flask import Idempotency
Idempotency(App("sqlite:///never.db"), flask.Flask("shop"), user=None)
Idempotency(App("sqlite:///never.db"), flask.Flask("shop"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith(
        "RuntimeError: Idempotency: the user of 'shop' is unknown, because Flask-Login is not installed; install flask-login, or"
    )
