"""Redrive from a zip, in a zip application, and vendored under another name. No copy has metadata of an installation."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from redrive.core.version import VERSION

pytestmark = pytest.mark.req("X-5")

PACKAGE = Path(__file__).parents[3] / "src" / "redrive"
TASKS = """
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from NAME import App, classify, retry
from NAME.errors import LedgerUnavailable
from NAME.storage import Registry, RegistryConfig

failures = [TimeoutError("slow")]
app = App("sqlite:///ledger.db")


@retry(max_attempts=2, backoff_base=0.001)
def fetch():
    if failures:
        raise failures.pop()
    return "fetched"


@app.command("shop.receipt", key="shop:{user}:o-1:receipt:v1")
def receipt(user: str) -> str:
    return f"receipt of {user}"


@app.command("shop.render", key="shop:{user}:o-1:render:v1", isolation="process")
def render(user: str) -> str:
    return f"rendered for {user}"


def main():
    try:
        print("metadata of", version("redrive"))
    except PackageNotFoundError:
        print("no metadata")
    print(fetch())
    jobs = receipt.submit("ann"), render.submit("bob")  # creates the tables
    with app.worker(threads=1, processes=1):
        for job in jobs:
            print(job.result(60))
    print(Registry(RegistryConfig.from_dict({"stores": {"raw": {"type": "memory"}}})).get_store("raw").exists("a"))
    from starlette.testclient import TestClient

    console = import_module("NAME.console").asgi(app)
    cookies = {"redrive_local_8000": console.access.local_cookie()}
    with TestClient(console, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 1), cookies=cookies) as browser:
        print(browser.get("/jobs").text.count("shop.render") > 0)
        for name in ("console.css", "console.js", "heat.js", "icon.svg"):
            response = browser.get(f"/static/{name}")
            again = browser.get(f"/static/{name}", headers={"if-none-match": response.headers["etag"]})
            print(response.status_code, response.headers["content-type"], len(response.content) > 100, again.status_code)
    print(classify(LedgerUnavailable("away")).kind)
    print("redrive" in sys.modules)
    sys.argv = ["redrive", "--version"]
    try:
        import_module("NAME.cli").main()
    except SystemExit as ended:
        print(ended.code)
"""
MAIN = """
import tasks

tasks.main()


@tasks.app.command("shop.resize", isolation="process")
def resize() -> None: ...


try:
    tasks.app.worker()
except TypeError as error:
    print(error)
"""
EXPECTED = f"""\
no metadata
fetched
receipt of ann
rendered for bob
False
True
200 text/css; charset=utf-8 True 304
200 text/javascript; charset=utf-8 True 304
200 text/javascript; charset=utf-8 True 304
200 image/svg+xml True 304
transient
{{is_top_level}}
redrive {VERSION}
0"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed packages without Redrive."""
    folder = tmp_path_factory.mktemp("libraries")
    for name in {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]}:
        for entry in Path(name).iterdir():
            if not entry.name.startswith("redrive") and entry.suffix != ".pth" and "__editable__" not in entry.name:
                (folder / entry.name).symlink_to(entry)
    return folder


def run(folder: Path, path: list[Path], *arguments: str | Path) -> str:
    """Run Python without site-packages, and return its output."""
    environment = {"PYTHONPATH": ":".join(map(str, path)), "PATH": "/usr/bin:/bin", "HOME": str(folder), "REDRIVE_DEBUG": "1"}
    done = subprocess.run([sys.executable, "-S", *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pack(target: Path, **programs: str) -> Path:
    """Write a zip with Redrive and these modules."""
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted(PACKAGE.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(PACKAGE.parent))
        for name, program in programs.items():
            archive.writestr(f"{name}.py", program.replace("NAME", "redrive"))
    return target


def test_a_zip_runs_jobs_migrations_commands_and_the_console(tmp_path: Path, libraries: Path) -> None:
    application = pack(tmp_path / "shop.pyz", tasks=TASKS, __main__=MAIN)
    printed, _, last = run(tmp_path, [libraries], application).rstrip().rpartition("\n")
    assert printed == EXPECTED.format(is_top_level=True)
    assert "__main__.resize is in a program that is not a file (a zip, or a prompt)" in last


def test_a_vendored_copy_works_under_another_name(tmp_path: Path, libraries: Path) -> None:
    vendored = tmp_path / "shop" / "_vendor" / "redrive"
    shutil.copytree(PACKAGE, vendored, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (vendored.parent, vendored.parents[1]):
        (folder / "__init__.py").write_text("")
    (tmp_path / "tasks.py").write_text(TASKS.replace("NAME", "shop._vendor.redrive"))
    printed = run(tmp_path, [libraries, tmp_path], "-c", "import tasks; tasks.main()")
    assert printed.rstrip() == EXPECTED.format(is_top_level=False)
