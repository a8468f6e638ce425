"""The console as a view of Django: sign-in, permissions, forms and live updates, under WSGI and ASGI."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.test import AsyncClient, Client, RequestFactory, override_settings

from redrive.django import get_app
from redrive.django.console import show_console
from redrive.ops import Operator
from tests.unit.django.conftest import use_backend
from tests.unit.django.sample_tasks import add

pytestmark = pytest.mark.req("X-2")

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
ROOT = "/ops/redrive"
PAUSE = {"scope": "job type", "name": add.module_path, "because": "INC-7"}


@pytest.fixture(scope="module")
def project(database: str) -> Iterator[None]:
    """A project with the console, and users: an operator, a viewer and a guest."""
    with use_backend(), override_settings(ROOT_URLCONF="tests.unit.django.urls", MIDDLEWARE=MIDDLEWARE, LOGIN_URL="/login/"):
        for name, permission in {"olga": "operate_console", "vera": "view_console", "gus": None}.items():
            user = User.objects.create_user(name)
            if permission is not None:
                user.user_permissions.add(Permission.objects.get(codename=permission))
        add.enqueue(1)
        yield


def signed_in(name: str, **options: Any) -> Client:
    client = Client(enforce_csrf_checks=True, **options)
    client.force_login(User.objects.get(username=name))
    return client


def post(client: Client, path: str, fields: dict[str, str], **headers: str) -> Any:
    """Post a form as a browser does."""
    form = "application/x-www-form-urlencoded"
    return client.post(f"{ROOT}/{path}", urlencode(fields), content_type=form, headers=headers)


def csrf_token(page: str) -> str:
    found = re.search(r'name="csrf" content="(\w+)"', page)
    assert found is not None, page
    return found[1]


@pytest.mark.usefixtures("project")
def test_a_visitor_is_sent_to_the_login_page_of_django() -> None:
    visitor = Client()
    page = visitor.get(f"{ROOT}/dead?kind=a")
    assert (page.status_code, page.headers["location"]) == (302, f"/login/?next={ROOT}/dead%3Fkind%3Da")
    for method, path in (("get", "api/overview"), ("get", "live"), ("post", "controls/pause")):
        assert getattr(visitor, method)(f"{ROOT}/{path}").status_code == 401


@pytest.mark.usefixtures("project")
def test_a_user_without_permission_sees_nothing() -> None:
    guest = signed_in("gus")
    for path in ("", "dead", "api/overview", "static/console.css"):
        assert guest.get(f"{ROOT}/{path}").status_code == 403


@pytest.mark.usefixtures("project")
def test_pages_are_shown_where_the_console_is_mounted() -> None:
    olga = signed_in("olga")
    for path, media in {
        "": "text/html",
        "jobs": "text/html",
        "api/overview": "application/json",
        "static/console.css": "text/css",
    }.items():
        page = olga.get(f"{ROOT}/{path}")
        assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, media)
    jobs = olga.get(f"{ROOT}/jobs").content.decode()
    assert f'href="{ROOT}/jobs/1"' in jobs
    assert add.module_path in jobs
    assert "olga" in jobs
    assert olga.get(f"{ROOT}/unknown").status_code == 404
    assert olga.get(ROOT).headers["location"] == f"{ROOT}/"  # Django adds the slash


@pytest.mark.usefixtures("project")
def test_an_operator_acts_under_the_name_of_the_user() -> None:
    olga = signed_in("olga")
    token = csrf_token(olga.get(f"{ROOT}/controls").content.decode())
    paused = post(olga, "controls/pause", {**PAUSE, "csrf": token})
    assert (paused.status_code, paused.headers["location"].startswith(f"{ROOT}/controls?")) == (303, True)
    assert '<p class="note good" role="status">' in olga.get(paused.headers["location"]).content.decode()
    entry = get_app().ledger.audit(limit=1000)[-1]
    assert (entry.actor, entry.because) == ("olga", "INC-7")
    resumed = post(olga, "controls/resume", {**PAUSE, "csrf": token})
    assert resumed.status_code == 303


@pytest.mark.usefixtures("project")
def test_a_viewer_may_not_act() -> None:
    vera = signed_in("vera")
    page = vera.get(f"{ROOT}/controls").content.decode()
    assert "read-only" in page
    before = len(get_app().ledger.audit(limit=1000))
    assert post(vera, "controls/pause", {**PAUSE, "csrf": csrf_token(page)}).status_code == 403
    assert len(get_app().ledger.audit(limit=1000)) == before


@pytest.mark.usefixtures("project")
def test_a_program_with_a_named_token_uses_the_api() -> None:
    created = Operator(get_app(), actor="olga").tokens.create("deploy-bot", because="deploys")
    program = Client(headers={"authorization": f"Bearer {created.token}"})
    assert program.get(f"{ROOT}/api/overview").status_code == 200
    assert program.post(f"{ROOT}/api/dead/replay", {}, content_type="application/json").status_code == 403  # it may only read
    stranger = Client(headers={"authorization": "Bearer rdt_unknown"})
    assert stranger.get(f"{ROOT}/api/overview").status_code == 401


@pytest.mark.usefixtures("project")
def test_a_form_of_another_site_is_rejected() -> None:
    olga, other = signed_in("olga"), signed_in("olga")
    token = csrf_token(olga.get(f"{ROOT}/controls").content.decode())
    other.get(f"{ROOT}/")
    before = len(get_app().ledger.audit(limit=1000))
    assert post(olga, "controls/pause", PAUSE).status_code == 403  # without a token
    assert post(other, "controls/pause", {**PAUSE, "csrf": token}).status_code == 403  # with the token of another browser
    assert post(olga, "controls/pause", {**PAUSE, "csrf": token}, origin="https://evil.example").status_code == 403
    assert len(get_app().ledger.audit(limit=1000)) == before


@pytest.mark.usefixtures("project")
def test_pages_under_wsgi_poll_instead_of_holding_a_stream() -> None:
    olga = signed_in("olga")
    page = olga.get(f"{ROOT}/").content.decode()
    assert 'data-poll-seconds="10"' in page
    assert "data-live-at" not in page
    assert olga.get(f"{ROOT}/live").status_code == 204


@pytest.mark.usefixtures("project")
def test_pages_under_asgi_get_live_updates() -> None:
    client = AsyncClient()
    client.force_login(User.objects.get(username="olga"))

    async def read() -> tuple[str, list[bytes]]:
        page = (await client.get(f"{ROOT}/")).content.decode()
        stream: Any = await client.get(f"{ROOT}/live")
        assert stream.headers["content-type"].startswith("text/event-stream")
        parts = aiter(stream.streaming_content)
        first = [await anext(parts), await anext(parts)]
        await parts.aclose()  # as Django does when the browser is gone
        return page, first

    page, events = asyncio.run(read())
    assert f'data-live-at="{ROOT}/live"' in page
    assert events[0] == b"retry: 3000\n\n"
    assert events[1].startswith(b"event: change\n")


@pytest.mark.usefixtures("project")
def test_a_reserved_or_long_name_is_replaced() -> None:
    for name in ("redrive", "x" * 150):
        user, _ = User.objects.get_or_create(username=name, is_superuser=True)
        client = Client()
        client.force_login(user)
        page = client.get(f"{ROOT}/").content.decode()
        assert (f"user {user.pk}" if name == "redrive" else "x" * 100) in page


def test_a_project_without_the_middleware_gets_an_error() -> None:
    request = RequestFactory().get("/")
    with pytest.raises(ImproperlyConfigured, match="add 'django.contrib.auth.middleware.AuthenticationMiddleware'"):
        asyncio.run(show_console(request))
    assert AnonymousUser().is_authenticated is False


WITHOUT_JINJA = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda *name: None if name[0] == "jinja2" else find(*name)
"""
PROGRAM = """
import sys
{before}
from django.conf import settings
import django
settings.configure(INSTALLED_APPS={apps}, DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}})
django.setup()
try:
    import redrive.django.urls
except Exception as error:
    print(f"{{type(error).__name__}}: {{error}}")
"""


@pytest.mark.parametrize(
    ("before", "apps", "error"),
    [
        (
            WITHOUT_JINJA,
            ["django.contrib.contenttypes", "django.contrib.auth", "redrive.django"],
            'ImportError: redrive.django.urls needs jinja2: pip install "redrive[console]"',
        ),
        (
            "",
            ["redrive.django"],
            "ImproperlyConfigured: INSTALLED_APPS: 'django.contrib.auth' is missing, which redrive.django.urls needs; add it",
        ),
    ],
)
def test_urls_that_cannot_work_fail_at_the_start(before: str, apps: list[str], error: str) -> None:
    program = PROGRAM.format(before=before, apps=apps)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == error
