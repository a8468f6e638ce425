"""examples/django_shop as a user runs it: `manage.py` in processes, a real server, and a browser's requests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.django_project import HAS_TASKS
from tests.servers.process import running

pytestmark = [
    pytest.mark.req("X-2"),
    pytest.mark.skipif(not HAS_TASKS and sys.version_info < (3, 12), reason="Django 6 needs Python 3.12"),
]
ROOT = Path(__file__).parents[3]
SHOP = ROOT / "examples" / "django_shop"
USERS = """
from django.contrib.auth.models import Permission, User
User.objects.create_superuser("ann", password="sesame-4711")
"""


class Shop:
    """The example with its own database, and the folder in which its programs run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = os.pathsep.join((str(SHOP), str(ROOT / "src")))
        self.environment = {**os.environ, "PYTHONPATH": path, "SHOP_DATABASE": str(folder / "shop.sqlite3"), "NO_COLOR": "1"}
        self.environment["DJANGO_SETTINGS_MODULE"] = "shop.settings"

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", str(SHOP / "manage.py"), *arguments]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120)

    @contextmanager
    def worker(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-W", "error", str(SHOP / "manage.py"), "redrive_worker", "--drain", "10", *arguments]
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    @contextmanager
    def server(self) -> Iterator[httpx.Client]:
        """Serve the shop under ASGI."""
        environment = [f"{name}={self.environment[name]}" for name in ("PYTHONPATH", "SHOP_DATABASE", "DJANGO_SETTINGS_MODULE")]

        def command(port: int) -> list[str]:
            serve = [sys.executable, "-m", "uvicorn", "shop.asgi:application", "--lifespan", "off", "--port", str(port)]
            return ["env", *environment, *serve]

        def is_ready(port: int) -> bool:
            try:
                return httpx.get(f"http://127.0.0.1:{port}/admin/login/").status_code == 200
            except httpx.HTTPError:
                return False

        with (
            running(command, ready=is_ready, folder=self.folder) as port,
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
        ):
            yield client


def wait_until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end
        time.sleep(0.2)


def hidden_fields(page: str, form: str) -> dict[str, str]:
    """Return the hidden fields of the form with this action."""
    text = page[page.index(f'action="{form}"') :].partition("</form>")[0]
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', text))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    migrated = shop.manage("migrate")
    assert (migrated.returncode, "Applying redrive.0001_ledger... OK" in migrated.stdout) == (0, True), migrated.stderr
    return shop


def test_the_shop_from_migration_to_replay(shop: Shop) -> None:
    assert shop.manage("shell", "-v0", "-c", USERS).returncode == 0
    with shop.server() as browser, shop.worker("--queue", "mail", "--name", "mailer") as worker:

        def order(user: str, **fields: str) -> httpx.Response:
            return browser.post("/orders/", data={"user": user, **fields})

        def read_order(number: int) -> dict[str, object]:
            answer: dict[str, object] = browser.get(f"/orders/{number}/").json()
            return answer

        # A task commits with its order, and the worker runs it.
        first = order("ann").json()["order"]
        wait_until(lambda: read_order(first)["status"] == "SUCCESSFUL")
        assert read_order(first) == {"receipt": "sent to ann", "status": "SUCCESSFUL", "attempts": 1}

        # A rolled back block leaves neither the order nor the task.
        assert order("bob", card="declined").status_code == 500
        assert browser.get(f"/orders/{first + 1}/").status_code == 404

        # A task that fails three times is a dead letter.
        (shop.folder / "mail-is-down").touch()
        failed = order("carl").json()["order"]
        wait_until(lambda: read_order(failed)["status"] == "FAILED")
        assert read_order(failed) == {"receipt": "", "status": "FAILED", "attempts": 3}
        (shop.folder / "mail-is-down").unlink()

        # The console asks for Django's login.
        sent_away = browser.get("/redrive/dead")
        assert (sent_away.status_code, sent_away.headers["location"]) == (302, "/admin/login/?next=/redrive/dead")
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get("/admin/login/").text)
        assert token is not None
        login = {"username": "ann", "password": "sesame-4711", "csrfmiddlewaretoken": token[1], "next": "/redrive/dead"}
        assert browser.post("/admin/login/?next=/redrive/dead", data=login).headers["location"] == "/redrive/dead"
        dead = browser.get("/redrive/dead")
        assert (dead.status_code, "shop.tasks.send_receipt" in dead.text) == (200, True)

        # Under ASGI, the page is told of changes.
        with browser.stream("GET", "/redrive/live") as stream:
            assert next(stream.iter_text()).startswith("retry: 3000")

        # A replay from the console succeeds, and the audit log has the user.
        plan = browser.get("/redrive/dead/plan", params={"act": "replay", "ids": "1"}).text
        applied = browser.post(
            "/redrive/dead/apply", data={**hidden_fields(plan, "/redrive/dead/apply"), "because": "mail is up"}
        )
        assert applied.status_code == 303, applied.text
        wait_until(lambda: read_order(failed)["status"] == "SUCCESSFUL")
        audit = browser.get("/redrive/audit").text
        assert "mail is up" in audit
        assert re.search(r">\s*ann\s*<", audit)

        # A signal drains the worker.
        worker.send_signal(signal.SIGTERM)
        printed, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0, printed
    assert re.match(
        r"Worker mailer-\S+ on sqlite:\S+: 2 commands, shop.tasks.count_orders@mail, shop.tasks.send_receipt; 8 threads", printed
    )
    assert "1 dead letter" in printed
    assert re.search(r"state=FAILED\n(.*\n)*?.*the mail server does not answer", printed)


def test_the_tests_of_the_shop_pass_in_the_test_runner_of_django(tmp_path: Path) -> None:
    done = Shop(tmp_path).manage("test", "shop")
    assert (done.returncode, "Ran 3 tests" in done.stderr) == (0, True), done.stderr
