"""Faults of a folder: killed writers, full disks, links, missing folders and permissions."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from redrive.errors import AlreadyExists, NotFound, PathInvalid, StorageError
from redrive.storage import Store
from redrive.storage.local import Local
from redrive.testing.storage import sample_bytes

START = "import resource, sys, time\nfrom redrive.storage import Store\nfrom redrive.storage.local import Local\n"


def child(program: str, root: Path, **options: object) -> subprocess.Popen[str]:
    """Run a program in another process, with `store` on the folder."""
    code = f"{START}store = Store(Local('disk', root={str(root)!r}))\n{textwrap.dedent(program)}"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload, no-any-return]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(Local("disk", root=str(tmp_path)))


@pytest.mark.req("S-12")
@pytest.mark.parametrize("how", ["write", "write_atomic", "create"])
def test_a_writer_killed_in_the_middle_leaves_the_old_file(store: Store, tmp_path: Path, how: str) -> None:
    if how != "create":
        store.write("file", b"old")
    writer = child(
        f"""
        def pieces():
            for number in range(10**9):
                yield b"x" * 1_000_000
                if number == 3:
                    print("half way", flush=True)
                    time.sleep(60)
        store.{how}("file", pieces())
        """,
        tmp_path,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "half way\n"
    writer.send_signal(signal.SIGKILL)
    assert writer.wait(30) == -signal.SIGKILL
    writer.stdout.close()
    assert list(store.files()) == ([] if how == "create" else ["file"])
    assert how == "create" or store.read_bytes("file") == b"old"
    assert len(list(tmp_path.iterdir())) == (1 if how == "create" else 2)  # Its temporary file exists, but is not listed.
    store.write("file", b"new")
    assert store.read_bytes("file") == b"new"


@pytest.mark.req("S-12")
def test_one_of_many_processes_creates_the_file(store: Store, tmp_path: Path) -> None:
    start = time.time() + 3
    program = f"""
        time.sleep(max(0, {start} - time.time()))
        won = 0
        for number in range(50):
            try:
                store.create(f"file-{{number}}", b"x" * 10_000)
                won += 1
            except Exception as error:
                assert type(error).__name__ == "AlreadyExists", error
        print(won)
        """
    children = [child(program, tmp_path) for _ in range(4)]
    won = [int(each.communicate(timeout=60)[0]) for each in children]
    assert sum(won) == 50
    assert all(store.info(f"file-{number}").size == 10_000 for number in range(50))


@pytest.mark.req("S-12")
@pytest.mark.parametrize("how", ["write", "write_atomic", "create"])
def test_a_full_disk_keeps_the_old_file(store: Store, tmp_path: Path, how: str) -> None:
    store.write("old", b"old")
    path = "new" if how == "create" else "old"
    writer = child(
        f"""
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        try:
            store.{how}({path!r}, b"x" * 5_000_000)
        except Exception as error:
            print(type(error).__name__, error, sep=": ")
        """,
        tmp_path,
    )
    output = writer.communicate(timeout=60)[0]
    assert output == f"StorageError: disk: no space for {path!r}: File too large\n"
    assert store.read_bytes("old") == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["old"]


@pytest.mark.req("S-12")
def test_missing_permissions_raise_denied(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o755)
    (closed / "secret").write_bytes(b"x")
    (closed / "secret").chmod(0)
    root = os.geteuid() == 0
    closed.chmod(0o555)
    for folder in (tmp_path, *tmp_path.parents):
        if root and folder.stat().st_uid == 0 and Path(tempfile.gettempdir()) in folder.parents:
            folder.chmod(0o755)
    nobody = pwd.getpwnam("nobody") if root else None
    program = """
        for act in (lambda: store.write("new", b"x"), lambda: store.read_bytes("secret"), lambda: store.delete("secret")):
            try:
                act()
            except Exception as error:
                print(type(error).__name__, error.path, error.backend)
        """
    code = f"{START}store = Store(Local('disk', root={str(closed)!r}))\n{textwrap.dedent(program)}"
    if nobody is None:
        output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    else:
        # Imported as root, run as another account, which may not be able to read this interpreter.
        code = code.replace("store = ", f"import os\nimport redrive.storage.errors\nos.setuid({nobody.pw_uid})\nstore = ", 1)
        output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/").stdout
    closed.chmod(0o755)
    assert output == "Denied new disk\nDenied secret disk\nDenied secret disk\n"


def test_a_missing_root_raises_not_found(tmp_path: Path) -> None:
    store = Store(Local("disk", root=str(tmp_path / "missing"), create=False))
    acts = (
        store.check,
        lambda: list(store.files()),
        lambda: store.read_bytes("file"),
        lambda: store.write("file", b"x"),
        lambda: store.delete("file"),
        lambda: store.exists("a") or store.info("a"),
    )
    for act in acts:
        with pytest.raises(NotFound, match="the folder .*missing is missing"):
            act()
    assert not (tmp_path / "missing").exists()
    created = Store(Local("disk", root=str(tmp_path / "missing")))
    created.check()
    created.delete("file")
    assert list(created.files()) == []
    assert not created.exists("file")
    assert not (tmp_path / "missing").exists()
    created.write("file", b"x")
    assert store.read_bytes("file") == b"x"
    with pytest.raises(NotFound, match="the folder .* is missing"):
        Store(Local("disk", root=str(tmp_path / "not" / "there"))).write("file", b"x")


def test_a_file_as_root_raises_not_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotFound):
        Store(Local(root=str(tmp_path / "file"))).write("a", b"x")


@pytest.mark.req("S-12")
def test_links_cannot_leave_the_root(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    (inside / "real").mkdir(parents=True)
    (outside / "secret").write_bytes(b"secret")
    (inside / "real" / "file").write_bytes(b"x")
    (inside / "folder").symlink_to(outside)
    (inside / "link").symlink_to(outside / "secret")
    (inside / "up").symlink_to("..")
    (inside / "dangling").symlink_to(outside / "nothing")
    (inside / "good").symlink_to(inside / "real" / "file")
    store = Store(Local("disk", root=str(inside)))
    for path in ("folder/secret", "link", "up/outside/secret", "dangling"):
        for act in (store.read, store.read_bytes, store.info, store.exists):
            with pytest.raises(PathInvalid, match="leads out of .* through a link"):
                act(path)
    for path in ("folder/new", "up/new", "folder/secret"):
        with pytest.raises(PathInvalid, match="leads out"):
            store.write(path, b"x")
        with pytest.raises(PathInvalid, match="leads out"):
            store.delete(path)
        with pytest.raises(PathInvalid, match="leads out"):
            store.move("real/file", path)
    assert sorted(store.files()) == ["good", "real/file"]
    assert list(store.folders()) == ["real"]
    store.write("link", b"mine")  # the link is replaced, not followed
    assert store.read_bytes("link") == b"mine"
    assert (outside / "secret").read_bytes() == b"secret"
    assert sorted(each.name for each in outside.iterdir()) == ["secret"]


def test_a_cycle_of_links_is_an_error(store: Store, tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    store.write("file", b"x")
    assert list(store.files()) == [info.path for info in store.list()] == ["file"]
    for act in (store.read, store.info, store.exists, lambda path: store.write(f"{path}/file", b"x")):
        with pytest.raises(PathInvalid):
            act("one")
    store.write("one", b"mine")
    assert store.read_bytes("one") == b"mine"


def test_listings_skip_entries_that_are_not_files(store: Store, tmp_path: Path) -> None:
    (tmp_path / ".redrive-0123456789abcdef").write_bytes(b"half")
    (tmp_path / "back\\slash").write_bytes(b"x")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")).write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    store.write("file", b"x")
    assert list(store.files()) == ["file"]


def test_a_write_to_a_folder_raises_path_invalid(store: Store) -> None:
    store.write("folder/file", b"x")
    for how in ("write", "write_atomic"):
        with pytest.raises(PathInvalid, match="is a folder"):
            getattr(store, how)("folder", b"x")
    with pytest.raises(AlreadyExists):
        store.create("folder", b"x")
    for how in ("write", "create"):
        with pytest.raises(PathInvalid, match="a part of it is a file"):
            getattr(store, how)("folder/file/inside", b"x")
    store.delete("folder")
    assert list(store.files()) == ["folder/file"]


def test_create_works_on_a_disk_without_hard_links(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    store.create("file", b"first")
    with pytest.raises(AlreadyExists):
        store.create("file", b"second")
    assert store.read_bytes("file") == b"first"
    assert list(store.files()) == ["file"]


def test_move_to_another_disk_copies_the_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write("file", sample_bytes(100_000))
    rename = Path.replace

    def across(self: Path, target: Path) -> Path:
        if not self.name.startswith(".redrive-"):
            raise OSError(18, "Invalid cross-device link")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", across)
    store.move("file", "other/disk")
    assert store.read_bytes("other/disk") == sample_bytes(100_000)
    assert list(store.files()) == ["other/disk"]


def test_an_error_while_reading_is_a_storage_error(store: Store, tmp_path: Path) -> None:
    store.write("file", b"x")
    with store.read("file") as file:
        os.close(file.fileno())
        with pytest.raises(StorageError, match="Bad file descriptor"):
            file.read()
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.close()


@pytest.mark.req("S-12")
def test_first_concurrent_writes_create_the_root(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        for number in range(150):
            store = Store(Local("disk", root=str(tmp_path / f"root-{number}")))
            start = threading.Barrier(4)

            def write(place: int, store: Store = store, start: threading.Barrier = start) -> None:
                start.wait()
                store.write(f"day={place}/file", b"x")

            list(threads.map(write, range(4)))
            assert sorted(store.files()) == [f"day={place}/file" for place in range(4)]
