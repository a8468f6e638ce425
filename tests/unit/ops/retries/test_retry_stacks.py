"""Sources of a stack of layers, and errors for unreadable ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.ops.retries.retry_stacks import LayersReport, Unreadable, layers


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    before, path = set(sys.modules), list(sys.path)
    yield tmp_path
    assert sys.path == path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def read(text: str) -> LayersReport:
    Path("stack.toml").write_text(text, encoding="utf-8")
    return layers("stack.toml")


STACK = """
[[layer]]
name = "api"
timeout = 30

[[layer]]
name = "crm"
max_in_call_retries = 4
backoff_base_s = 1
backoff_max = 4
jitter = 0
on = ["transient", 429, "UNAVAILABLE"]
attempt_timeout = "none"
budget = "crm"

[[layer]]
name = "sdk"
by = "openai"
max_attempts = 3
attempt_timeout = 60
seen = false
"""


def test_a_toml_file_becomes_a_report() -> None:
    report = read(STACK)
    api, crm, sdk = report.layers
    assert (api.max_attempts, api.waits, api.limit, api.attempt_timeout) == (3, ((0.25, 0.5), (0.5, 0.75)), 30, 10)
    assert (crm.max_attempts, crm.waits, crm.attempt_timeout) == (5, ((1, 1), (2, 2), (4, 4), (4, 4)), None)
    assert (sdk.by, sdk.max_attempts, sdk.waits, sdk.attempt_timeout) == ("openai", 3, ((0, 0), (0, 0)), 60)
    assert {"429", "UNAVAILABLE"} < {row.error for row in report.errors}
    assert report.multiplies  # seen = false


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        ("[1, 10]", [(0.9, 1.1), (9, 11), (9, 11)]),
        ("{ steps = [1, 10], jitter = 0 }", [(1, 1), (10, 10), (10, 10)]),
        ("{ fixed = 2.5 }", [(2.5, 2.5)] * 3),
        ("{ powers = 2, cap = 5 }", [(2, 2), (4, 4), (5, 5)]),
        ("{ doubling = 2, cap = 5, jitter = 0.5 }", [(2, 3), (4, 6), (5, 7.5)]),
        ("{ full_jitter = 1, cap = 3 }", [(0, 1), (0, 2), (0, 3)]),
    ],
)
def test_every_form_of_backoff_is_read(backoff: str, waits: list[tuple[float, float]]) -> None:
    report = read(f'[[layer]]\nname = "a"\nmax_attempts = 4\nbackoff = {backoff}')
    assert sum(report.layers[0].waits, ()) == pytest.approx(sum(waits, ()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "stack.toml: no layers in it; use [[layer]] tables, the outermost first"),
        ("layer = 3", "no layers in it"),
        ("layer = [3]", "no layers in it"),
        ("[layer]\nname = 'a'", "no layers in it"),
        ("[[layers]]\nname = 'a'", "unknown 'layers'"),
        ("[[layer]]\nname = ", "stack.toml is not valid TOML: Invalid value (at end of document)"),
        ("[[layer]]\nmax_attempts = 3", "stack.toml: [[layer]] 1: no name"),
        (
            "[[layer]]\nname = 'a'\n[[layer]]\nname = 'b'\nmax_attemps = 3",
            "[[layer]] 2 (b): unknown key 'max_attemps' (did you mean",
        ),
        (
            "[[layer]]\nname = 'a'\ncolour = 3",
            "known: name, by, on, nested, seen, attempt_timeout, backoff, budget, max_attempts",
        ),
        ("[[layer]]\nname = 'a'\nmax_attempts = 0", "[[layer]] 1 (a): max_attempts must be at least 1"),
        ("[[layer]]\nname = 'a'\nmax_attempts = 'three'", "max_attempts must be a whole number"),
        ("[[layer]]\nname = 'a'\nmax_in_call_retries = 1\nmax_attempts = 2", "both set 'max_attempts'"),
        ("[[layer]]\nname = 'a'\ntimeout = nan", "finite number"),
        ("[[layer]]\nname = 'a'\nattempt_timeout = 'soon'", "attempt_timeout must be seconds"),
        ("[[layer]]\nname = 'a'\nby = 'celery'\nmax_attempts = 3", "by must be one of redrive, tenacity"),
        ("[[layer]]\nname = 'a'\nby = 'openai'", "set max_attempts"),
        ("[[layer]]\nname = 'a'\non = []", "nothing is retried"),
        ("[[layer]]\nname = 'a'\non = [true]", "kinds of fault"),
        ("[[layer]]\nname = 'a'\nnested = 'yes'", "'final' or 'allow'"),
        ("[[layer]]\nname = 'a'\nbackoff = [1]\njitter = 2", "remove jitter"),
        ("[[layer]]\nname = 'a'\nbackoff = 3", "backoff must be a list of seconds, or one of"),
        ("[[layer]]\nname = 'a'\nbackoff = { fixed = 1, powers = 2 }", "backoff must be a list of seconds, or one of"),
        ("[[layer]]\nname = 'a'\nbackoff = { fixed = 1, cap = 2 }", "backoff must be a list of seconds, or one of"),
        ("[[layer]]\nname = 'a'\nbackoff = { powers = 2 }", "needs a cap"),
        ("[[layer]]\nname = 'a'\nbackoff = []", "at least one wait"),
        ("[[layer]]\nname = 'a'\nbackoff = ['1']", "must be seconds or a timedelta"),
    ],
)
def test_an_invalid_file_is_reported(text: str, message: str) -> None:
    with pytest.raises(Unreadable) as wrong:
        read(text)
    assert message in str(wrong.value)
    assert str(wrong.value).startswith("stack.toml")


def test_unreadable_files_are_reported(folder: Path) -> None:
    with pytest.raises(Unreadable, match="missing.toml cannot be read: No such file"):
        layers("missing.toml")
    with pytest.raises(Unreadable, match="missing: no such file; pass a TOML file, or module:object"):
        layers("missing")
    Path("latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(Unreadable, match="not UTF-8"):
        layers("latin.toml")
    Path("folder.toml").mkdir()
    with pytest.raises(Unreadable, match=r"folder.toml cannot be read: Is a directory"):
        layers("folder.toml")


MODULE = """
from redrive import retry
from redrive.analysis.report import Layer
crm = retry(max_attempts=5, operation="crm")
@crm
def fetch(): ...
class Client:
    @retry(max_attempts=2)
    def get(self): ...
stack = [Layer("api"), crm, fetch, (Client.get,)]
nothing = object()
"""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("crm", [("crm", 5)]),
        ("fetch", [("crm", 5)]),
        ("Client.get", [("mine.Client.get", 2)]),
        ("stack", [("api", 3), ("crm #1", 5), ("crm #2", 5), ("mine.Client.get", 2)]),
    ],
)
def test_an_object_of_a_local_module_is_loaded(name: str, found: list[tuple[str, int]]) -> None:
    Path("mine.py").write_text(MODULE)
    assert [(layer.name, layer.max_attempts) for layer in layers(f"mine:{name}").layers] == found


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere:x", "module nowhere cannot be imported: not found in "),
        ("nowhere.else:x", "module nowhere.else cannot be imported: not found in "),
        ("broken:x", "module broken cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("leaves:x", "module leaves cannot be imported: SystemExit: 3"),
        ("mine:fetsh", "mine:fetsh: no attribute 'fetsh' (did you mean 'fetch'?)"),
        ("mine:Client.got", "no attribute 'got' (did you mean 'get'?)"),
        ("mine:nothing", "mine:nothing: a layer must be a Retry, a function decorated with one, or a Layer, not object"),
        ("mine:", "no such file"),
        (":crm", "no such file"),
        ("..:crm", "module .. cannot be imported"),
    ],
)
def test_an_invalid_object_is_reported(source: str, message: str) -> None:
    Path("mine.py").write_text(MODULE)
    Path("broken.py").write_text("import nowhere")
    Path("leaves.py").write_text("raise SystemExit(3)")
    with pytest.raises(Unreadable) as wrong:
        layers(source)
    assert message in str(wrong.value)
    if source in ("broken:x", "leaves:x"):
        assert str(wrong.value).endswith(f"{source[:6]}.py:1)")  # where
