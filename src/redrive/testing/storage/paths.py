"""Tests of paths: valid paths are kept unchanged, and no path leaves its root."""

from __future__ import annotations

import pytest

from ...errors import PathInvalid
from ...storage import Store
from .samples import INVALID_PATHS, VALID_PATHS


class PathTests:
    """Names of files, and roots of stores."""

    unsupported_names: tuple[str, ...] = ()

    @pytest.mark.parametrize("name", VALID_PATHS, ids=ascii)
    def test_a_valid_path_is_kept_unchanged(self, store: Store, name: str) -> None:
        if name in self.unsupported_names:
            with pytest.raises(PathInvalid):
                store.write(name, b"x")
            return
        store.write(name, name.encode())
        assert store.read_bytes(name) == name.encode()
        assert list(store.files()) == [name]
        assert store.info(name) == next(iter(store.list())) or store.info(name).path == name
        store.copy(name, "copied")
        store.move("copied", name + "2")
        assert sorted(store.files()) == sorted([name, name + "2"])
        store.delete(name)
        assert not store.exists(name)

    @pytest.mark.parametrize("path", INVALID_PATHS, ids=lambda path: ascii(path)[:30])
    def test_an_invalid_path_is_rejected(self, store: Store, path: str) -> None:
        store.write("existing", b"x")
        for operation in (
            lambda: store.write(path, b"x"),
            lambda: store.write_atomic(path, b"x"),
            lambda: store.create(path, b"x"),
            lambda: store.read(path),
            lambda: store.read_bytes(path),
            lambda: store.info(path),
            lambda: store.exists(path),
            lambda: store.delete(path),
            lambda: store.move("existing", path),
            lambda: store.move(path, "other"),
            lambda: store.copy("existing", path),
            lambda: store.copy(path, "other"),
            lambda: list(store.files(path)) if path else store.info(path),
            lambda: list(store.folders(path)) if path else store.info(path),
        ):
            with pytest.raises(PathInvalid) as caught:
                operation()
            assert caught.value.backend == store.backend.name
        assert list(store.files()) == ["existing"]

    def test_a_path_of_1024_bytes_is_written_or_rejected(self, store: Store) -> None:
        path = "/".join(["x" * 63] * 16)
        path += "y" * (1024 - len(path))
        assert len(path) == 1024
        try:
            store.write(path, b"long")
        except PathInvalid:
            return  # The service has a lower limit.
        assert store.read_bytes(path) == b"long"
        assert list(store.files()) == [path]

    def test_two_unicode_forms_of_a_letter_are_never_mixed(self, store: Store) -> None:
        composed, decomposed = "caf\u00e9", "cafe\u0301"
        store.write(composed, b"composed")
        store.write(decomposed, b"decomposed")
        if sorted(store.files()) == sorted([composed, decomposed]):
            assert store.read_bytes(composed) == b"composed"
            assert store.read_bytes(decomposed) == b"decomposed"
        else:  # The service treats both as one file.
            assert len(list(store.files())) == 1
            assert store.read_bytes(composed) == store.read_bytes(decomposed) == b"decomposed"

    def test_a_name_of_1000_bytes_is_written_or_rejected(self, store: Store) -> None:
        try:
            store.write("x" * 1000, b"long")
        except PathInvalid:
            assert not list(store.files())
            return
        assert store.read_bytes("x" * 1000) == b"long"

    def test_a_store_with_a_root_sees_only_files_below_it(self, store: Store) -> None:
        inner = Store(store.backend, root_path=store.whole("inner/root"))
        store.write("outside", b"x")
        store.write("inner/rooted", b"x")
        inner.write("a/file", b"y")
        assert list(inner.files()) == ["a/file"]
        assert list(inner.folders()) == ["a"]
        assert inner.info("a/file").path == "a/file"
        inner.copy("a/file", "b")
        inner.move("b", "c/d")
        assert sorted(inner.files()) == ["a/file", "c/d"]
        assert not inner.exists("outside")
        assert sorted(store.files()) == [
            "inner/root/a/file",
            "inner/root/c/d",
            "inner/rooted",
            "outside",
        ]
        with pytest.raises(PathInvalid):
            inner.write("../rooted", b"x")
        with pytest.raises(PathInvalid):
            inner.write("/".join(["x" * 59] * 17), b"x")  # 1,019 bytes, without the root.
