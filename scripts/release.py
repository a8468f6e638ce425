"""Build the files of a release into dist/ and check them: `make release REPOSITORY=https://git.example/owner/redrive`.

It publishes nothing. It refuses to build without the address of the repository, with changes that are not committed or not
tagged, and without an entry in the changelog. If the files have no problem, it prints the command that uploads them.

The build is reproducible: files with the same commit have the same hashes, and the source distribution builds the same wheel.
"""

from __future__ import annotations

import email
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.package_metadata import RELATIVE, VARIABLE, repository_address  # noqa: E402

NEEDED_URLS = ("Repository", "Documentation", "Changelog", "Issues")
DATA_SUFFIXES = frozenset((".py", ".typed", ".html", ".css", ".js", ".svg"))
"""Types of files in the package."""
IN_SOURCE = (
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "pyproject.toml",
    "scripts/package_metadata.py",
    "src/redrive/py.typed",
    "PKG-INFO",
)
NOT_IN_SOURCE = re.compile(r"(?:^|/)(?:\.venv[^/]*|\.cache|\.git|__pycache__|site|dist)(?:/|$)|\.(?:db|db-wal|db-shm|pyc)$")


def main() -> int:
    repository = os.environ.get("REPOSITORY", "")
    version = read_version(ROOT)
    problems = check_source(ROOT, version) + check_address(repository)
    if problems:
        return refuse(problems, "Nothing was built.")
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    epoch = git(ROOT, "log", "-1", "--format=%ct")
    build(ROOT, folder, epoch, repository)
    problems = check_distributions(folder, version, epoch)
    if problems:
        return refuse(problems, "Do not publish the files in dist/.")
    subprocess.run([sys.executable, "scripts/sbom.py"], cwd=ROOT, check=True)
    for file in sorted(folder.iterdir()):
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  dist/{file.name}")
    print(f"Redrive {version} is ready. Publish it with:\n  python -m twine upload dist/*.whl dist/*.tar.gz")
    return 0


def refuse(problems: list[str], consequence: str) -> int:
    for problem in problems:
        print(f"release: {problem}", file=sys.stderr)
    print(consequence, file=sys.stderr)
    return 1


def read_version(root: Path) -> str:
    version: str = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return version


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def check_address(repository: str) -> list[str]:
    """Return the problem of the repository's address, if it has one."""
    if not repository:
        return ["no repository address; run make release REPOSITORY=https://git.example/owner/redrive"]
    try:
        repository_address(repository)
    except ValueError as error:
        return [str(error)]
    return []


def check_source(root: Path, version: str) -> list[str]:
    """Return the problems of a commit that is to be released."""
    problems = []
    code = (root / "src" / "redrive" / "core" / "version.py").read_text(encoding="utf-8")
    if f'VERSION = "{version}"' not in code:
        problems.append(f"src/redrive/core/version.py: not the version {version} of pyproject.toml; change one of them")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        problems.append(f"CHANGELOG.md: no section '## {version} - <date>'; rename '## Unreleased' to it")
    elif re.search(r"^## Unreleased\n(?:(?!^## ).*\n)*?- ", changelog, re.MULTILINE):
        problems.append(f"CHANGELOG.md: '## Unreleased' has entries; move them to the section of {version}")
    if git(root, "status", "--porcelain"):
        problems.append("the working tree has changes; commit or remove them")
    if f"v{version}" not in git(root, "tag", "--points-at", "HEAD").split():
        problems.append(f"this commit is not tagged; run git tag v{version}")
    return problems


def build(root: Path, folder: Path, epoch: str, repository: str = "") -> None:
    """Build the source distribution and the wheel, without the network.

    Args:
        root: The clone.
        folder: Where the files are written.
        epoch: Time of the commit, for reproducible files.
        repository: Address of the repository. Without it, the files must not be published.
    """
    variables = os.environ | {VARIABLE: repository, "SOURCE_DATE_EPOCH": epoch}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=root, env=variables, check=True, capture_output=True)


def check_distributions(folder: Path, version: str, epoch: str) -> list[str]:
    """Return the problems of built files."""
    wheel, source = folder / f"redrive-{version}-py3-none-any.whl", folder / f"redrive-{version}.tar.gz"
    return [
        *check_with_twine(wheel, source),
        *check_wheel(wheel, version),
        *check_source_distribution(source, version),
        *check_rebuild(wheel, source, epoch),
    ]


def check_with_twine(*files: Path) -> list[str]:
    """Return what twine reports about the metadata, which an index would reject."""
    command = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else [f"twine check: {' '.join(done.stdout.split())}"]


def check_wheel(wheel: Path, version: str) -> list[str]:
    """Return missing and superfluous files of a wheel, and missing metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = email.message_from_string(archive.read(f"redrive-{version}.dist-info/METADATA").decode())
    shipped = {name for name in names if not name.startswith(f"redrive-{version}.dist-info/")}
    package = ROOT / "src" / "redrive"
    expected = {
        str(PurePosixPath("redrive", *file.relative_to(package).parts))
        for file in package.rglob("*")
        if file.is_file() and file.suffix in DATA_SUFFIXES and "__pycache__" not in file.parts
    }
    problems = [f"{wheel.name}: {name} is missing" for name in sorted(expected - shipped)]
    problems += [f"{wheel.name}: {name} does not belong in it" for name in sorted(shipped - expected)]
    if f"redrive-{version}.dist-info/licenses/LICENSE" not in names:
        problems.append(f"{wheel.name}: the licence is missing")
    return problems + check_metadata(metadata, wheel.name)


def check_metadata(metadata: Message, name: str) -> list[str]:
    """Return problems that a reader of the index's page would see."""
    labels = {url.partition(", ")[0] for url in metadata.get_all("Project-URL") or ()}
    problems = [f"{name}: no address of the {label}" for label in NEEDED_URLS if label not in labels]
    page = str(metadata.get_payload())
    if relative := RELATIVE.search(re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)):
        problems.append(f"{name}: the link {relative['target']} of the README is relative")
    return problems


def check_source_distribution(source: Path, version: str) -> list[str]:
    """Return missing and superfluous files of a source distribution."""
    with tarfile.open(source) as archive:
        names = {member.name.removeprefix(f"redrive-{version}/") for member in archive.getmembers()}
    problems = [f"{source.name}: {name} is missing" for name in IN_SOURCE if name not in names]
    return problems + [f"{source.name}: {name} does not belong in it" for name in sorted(names) if NOT_IN_SOURCE.search(name)]


def check_rebuild(wheel: Path, source: Path, epoch: str) -> list[str]:
    """Return a problem if pip builds another wheel from the source distribution."""
    with tempfile.TemporaryDirectory() as folder:
        options = "--no-build-isolation --no-deps --no-index --quiet --disable-pip-version-check".split()
        command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, str(source)]
        variables = {name: value for name, value in os.environ.items() if name != VARIABLE} | {"SOURCE_DATE_EPOCH": epoch}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            return [f"{source.name}: pip cannot build it ({done.stderr.strip()[-400:]})"]
        if (Path(folder) / wheel.name).read_bytes() != wheel.read_bytes():
            return [f"{source.name}: builds another wheel than {wheel.name}"]
    return []


if __name__ == "__main__":
    sys.exit(main())
