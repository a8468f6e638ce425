"""Wheel and source distribution: metadata, contents, reproducible builds, and what a release refuses."""

from __future__ import annotations

import email
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from email.message import Message
from pathlib import Path

import pytest

from scripts import release
from scripts.package_metadata import project_urls, repository_address

pytestmark = pytest.mark.req("X-5")

EPOCH = "1790000000"
REPOSITORY = "https://git.example/owner/redrive"
VERSION = release.read_version(release.ROOT)
WHEEL = f"redrive-{VERSION}-py3-none-any.whl"


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    release.build(release.ROOT, folder, EPOCH, REPOSITORY)
    return folder


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_string(archive.read(f"redrive-{VERSION}.dist-info/METADATA").decode())


def test_built_files_have_no_problems(distributions: Path) -> None:
    """Twine accepts both, no file is missing or superfluous, and the source distribution builds the same wheel."""
    assert release.check_distributions(distributions, VERSION, EPOCH) == []


def test_the_wheel_has_what_runs_and_nothing_else(distributions: Path) -> None:
    with zipfile.ZipFile(distributions / WHEEL) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names} == {"redrive", f"redrive-{VERSION}.dist-info"}
    for name in ("py.typed", "console/templates/base.html", "console/static/console.css", "ledger/db/migrations/env.py"):
        assert f"redrive/{name}" in names
    assert not [name for name in names if "test_" in name or name.endswith((".pyc", ".toml", ".mako"))]


def test_the_index_shows_addresses_and_absolute_links(distributions: Path) -> None:
    metadata = metadata_of(distributions / WHEEL)
    assert dict(url.split(", ") for url in metadata.get_all("Project-URL") or ()) == project_urls(REPOSITORY, VERSION)
    assert f"]({REPOSITORY}/blob/v{VERSION}/docs/tutorial/index.md)" in metadata.get_payload()
    assert (metadata["Requires-Python"], metadata["License-Expression"]) == (">=3.11", "MIT")
    assert metadata.get_all("Dynamic") is None


def tamper(wheel: Path, to: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """Write a changed copy of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    with zipfile.ZipFile(to / wheel.name, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return to / wheel.name


def test_each_defect_of_a_wheel_is_reported(distributions: Path, tmp_path: Path) -> None:
    def change(files: dict[str, bytes]) -> None:
        del files["redrive/py.typed"], files[f"redrive-{VERSION}.dist-info/licenses/LICENSE"]
        files["tests/test_it.py"] = b""
        metadata = f"redrive-{VERSION}.dist-info/METADATA"
        files[metadata] = files[metadata].replace(b"Project-URL: Issues", b"X-Project-URL: Issues") + b"\n[more](docs/more.md)\n"

    assert release.check_wheel(tamper(distributions / WHEEL, tmp_path, change), VERSION) == [
        f"{WHEEL}: redrive/py.typed is missing",
        f"{WHEEL}: tests/test_it.py does not belong in it",
        f"{WHEEL}: the licence is missing",
        f"{WHEEL}: no address of the Issues",
        f"{WHEEL}: the link docs/more.md of the README is relative",
    ]


def test_twine_rejects_broken_metadata(distributions: Path, tmp_path: Path) -> None:
    def change(files: dict[str, bytes]) -> None:
        metadata = f"redrive-{VERSION}.dist-info/METADATA"
        files[metadata] = files[metadata].replace(b"text/markdown", b"text/x-rst")

    (problem,) = release.check_with_twine(tamper(distributions / WHEEL, tmp_path, change))
    assert problem.startswith("twine check: ")


def test_a_release_needs_an_address_a_changelog_entry_a_tag_and_a_clean_tree(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md", "src/redrive/core/version.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(release.ROOT / name, tmp_path / name)
    changelog, code = tmp_path / "CHANGELOG.md", tmp_path / "src/redrive/core/version.py"
    changelog.write_text("# Changelog\n\n## Unreleased\n\n### Added\n\n- **Jobs:** more.\n")
    code.write_text('VERSION = "0.0.9"\n')
    git(tmp_path, "init", "-q")
    assert release.check_source(tmp_path, VERSION) == [
        f"src/redrive/core/version.py: not the version {VERSION} of pyproject.toml; change one of them",
        f"CHANGELOG.md: no section '## {VERSION} - <date>'; rename '## Unreleased' to it",
        "the working tree has changes; commit or remove them",
        f"this commit is not tagged; run git tag v{VERSION}",
    ]
    code.write_text(f'VERSION = "{VERSION}"\n')
    changelog.write_text(
        f"# Changelog\n\n## Unreleased\n\n- **Jobs:** more.\n\n## {VERSION} - 2026-11-16\n\n- **Jobs:** first.\n"
    )
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "Release")
    git(tmp_path, "tag", f"v{VERSION}")
    assert release.check_source(tmp_path, VERSION) == [
        f"CHANGELOG.md: '## Unreleased' has entries; move them to the section of {VERSION}"
    ]
    changelog.write_text(f"# Changelog\n\n## Unreleased\n\n## {VERSION} - 2026-11-16\n\n- **Jobs:** first.\n")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qam", "Release")
    git(tmp_path, "tag", "-f", f"v{VERSION}")
    assert release.check_source(tmp_path, VERSION) == []


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def test_nothing_is_built_without_an_address(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, release.ROOT / "scripts" / "release.py"], cwd=tmp_path, env={}, capture_output=True, text=True
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (1, [])
    assert "release: no repository address; run make release REPOSITORY=" in done.stderr
    assert done.stderr.endswith("Nothing was built.\n")


@pytest.mark.parametrize(
    "address", ["git@git.example:owner/redrive", "https://ann:word@git.example/redrive", "https://git.example", "redrive"]
)
def test_an_address_that_an_index_cannot_show_is_rejected(address: str) -> None:
    with pytest.raises(ValueError, match="REDRIVE_REPOSITORY: not an https address") as caught:
        repository_address(address)
    assert "word" not in str(caught.value)


def test_an_address_may_be_the_one_to_clone() -> None:
    assert repository_address(f"{REPOSITORY}.git") == repository_address(f"{REPOSITORY}/") == REPOSITORY
