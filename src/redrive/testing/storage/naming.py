"""Naming: every well formed path is kept as it is, and none leaves its root."""

from __future__ import annotations

import pytest

from ...errors import PathInvalid
from ...storage import Store
from .sample import BAD, NAMES


class Naming:
    """Names and roots."""

    unsupported_names: tuple[str, ...] = ()

    @pytest.mark.parametrize("name", NAMES, ids=ascii)
    def test_a_name_is_kept_as_it_is(self, store: Store, name: str) -> None:
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

    @pytest.mark.parametrize("path", BAD, ids=lambda path: ascii(path)[:30])
    def test_a_bad_path_is_refused(self, store: Store, path: str) -> None:
        store.write("there", b"x")
        for act in (
            lambda: store.write(path, b"x"),
            lambda: store.write_atomic(path, b"x"),
            lambda: store.create(path, b"x"),
            lambda: store.read(path),
            lambda: store.read_bytes(path),
            lambda: store.info(path),
            lambda: store.exists(path),
            lambda: store.delete(path),
            lambda: store.move("there", path),
            lambda: store.move(path, "other"),
            lambda: store.copy("there", path),
            lambda: store.copy(path, "other"),
            lambda: list(store.files(path)) if path else store.info(path),
            lambda: list(store.folders(path)) if path else store.info(path),
        ):
            with pytest.raises(PathInvalid) as caught:
                act()
            assert caught.value.backend == store.backend.name
        assert list(store.files()) == ["there"]

    def test_a_path_of_1024_characters(self, store: Store) -> None:
        path = "/".join(["x" * 63] * 16)
        path += "y" * (1024 - len(path))
        assert len(path) == 1024
        try:
            store.write(path, b"long")
        except PathInvalid:
            return  # the service has a lower limit, and says so
        assert store.read_bytes(path) == b"long"
        assert list(store.files()) == [path]

    def test_two_forms_of_one_letter(self, store: Store) -> None:
        one, other = "caf\u00e9", "cafe\u0301"
        store.write(one, b"one")
        store.write(other, b"other")
        if sorted(store.files()) == sorted([one, other]):
            assert (store.read_bytes(one), store.read_bytes(other)) == (b"one", b"other")
        else:  # the service takes them for the same: then they are one file, and not half of each
            assert len(list(store.files())) == 1
            assert store.read_bytes(one) == store.read_bytes(other) == b"other"

    def test_a_name_that_is_too_long_for_a_file_system(self, store: Store) -> None:
        try:
            store.write("x" * 1000, b"long")
        except PathInvalid:
            assert not list(store.files())
            return
        assert store.read_bytes("x" * 1000) == b"long"

    def test_a_store_under_a_root_sees_nothing_else(self, store: Store) -> None:
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
        assert sorted(store.files()) == ["inner/root/a/file", "inner/root/c/d", "inner/rooted", "outside"]
        with pytest.raises(PathInvalid):
            inner.write("../rooted", b"x")
        with pytest.raises(PathInvalid):
            inner.write("/".join(["x" * 59] * 17), b"x")  # 1,019 bytes, and the root before it
