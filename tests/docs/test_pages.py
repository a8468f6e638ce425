"""Every block of code in README.md and docs/ runs as described."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks
from tests.zygote import warm

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ON_PYTHON_312 = {"docs/how-to/jobs/django.md"}
WITH_CODE = [page for page in PAGES if blocks(page.read_text(encoding="utf-8"))]


def run(page: str, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    given = {"page": page, "steps": [dataclasses.asdict(block) for block in blocks(text)]}
    own, place = folder / "own", folder / "place"
    own.mkdir()
    place.mkdir()
    source, out, err = (own / name for name in ("input", "output", "errors"))
    source.write_text(json.dumps(given), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    child = warm().fork("tests.docs.page", (), input=source, output=out, errors=err, folder=place, environment=environment)
    return subprocess.CompletedProcess(page, warm().wait(child), out.read_text("utf-8"), err.read_text("utf-8"))


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    if str(page.relative_to(ROOT)) in ON_PYTHON_312 and sys.version_info < (3, 12):
        pytest.skip("needs Python 3.12, on which `make test` runs it too")
    done = run(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"), tmp_path)
    assert done.returncode == 0, done.stderr


PAGE = """
# A page
```python
from dataclasses import dataclass
@dataclass
class Shared: number: int
```
text
```python
assert Shared(7).number == 7 and __name__ == "__main__"
```
    ```python
    indented = True
    ```
<!-- not run: it would reach out -->
```python
raise SystemExit(3)
```
```console
$ exit 1
```
<!-- run -->
```console
$ echo one; echo two; echo three
one
...
three
$ true
```
"""


def test_only_marked_blocks_run(tmp_path: Path) -> None:
    assert [(block.language, block.line, block.run) for block in blocks(PAGE)] == [
        ("python", 4, True),
        ("python", 10, True),
        ("python", 13, True),
        ("python", 17, False),
        ("console", 20, False),
        ("console", 24, True),
    ]
    assert blocks(PAGE)[2] == Block("python", "indented = True\n", 13, run=True)
    done = run("page.md", PAGE, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\n1 / 0\n```\n", 'File "page.md", line 2'),
        ("<!-- not run: no reason to -->\n```python\n1 +\n```\n", "SyntaxError"),
        ("```python\nimport warnings; warnings.warn('old')\n```\n", "UserWarning: old"),
        ("<!-- run -->\n```console\n$ exit 4\n```\n", "page.md:3: `exit 4` ended with 4"),
        ("<!-- run, exit code 1 -->\n```console\n$ exit 4\n```\n", "page.md:3: `exit 4` ended with 4"),
        ("<!-- run -->\n```console\n$ echo one\ntwo\n```\n", "instead of\ntwo"),
    ],
)
def test_an_invalid_page_is_reported(tmp_path: Path, text: str, message: str) -> None:
    done = run("page.md", text, tmp_path)
    assert done.returncode != 0
    assert message in done.stderr


def test_a_console_block_may_expect_another_exit_code(tmp_path: Path) -> None:
    text = "<!-- run, exit code 4 -->\n```console\n$ exit 4\n```\n"
    assert blocks(text) == [Block("console", "$ exit 4\n", 3, run=True, status=4)]
    done = run("page.md", text, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_block_is_not_left_out_without_a_reason() -> None:
    with pytest.raises(ValueError, match="say why"):
        blocks("<!-- not run -->\n```python\n```\n")


HIDDEN = """
<!-- hidden
```python
server = "https://crm.example"
```
-->
```python
url = server
```
<!-- hidden
```python
assert url == "https://crm.example"
```
-->
"""


def test_a_hidden_block_runs_in_its_place(tmp_path: Path) -> None:
    assert [(block.line, block.run) for block in blocks(HIDDEN)] == [(4, True), (8, True), (12, True)]
    done = run("page.md", HIDDEN, tmp_path)
    assert done.returncode == 0, done.stderr
    second = tmp_path / "second"
    second.mkdir()
    done = run("page.md", HIDDEN.replace("assert url ==", "assert url !="), second)
    assert "AssertionError" in done.stderr


def test_a_hidden_block_must_be_closed() -> None:
    with pytest.raises(ValueError, match="line 2: a hidden block is not closed"):
        blocks("text\n<!-- hidden\n```python\n```\n")


WRITTEN = """
<!-- file: shop.py -->
```python
name = __name__
assert name == 'shop'
```
```python
from shop import name
assert name == "shop"
```
"""


def test_a_file_block_is_written_and_not_run(tmp_path: Path) -> None:
    assert [(block.file, block.run) for block in blocks(WRITTEN)] == [("shop.py", False), (None, True)]
    done = run("page.md", WRITTEN, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "place" / "shop.py").read_text("utf-8") == blocks(WRITTEN)[0].source


def test_a_file_block_may_be_of_any_language(tmp_path: Path) -> None:
    text = '<!-- file: stack.toml -->\n```toml title="stack.toml"\nname = 1\n```\n'
    assert blocks(text) == [Block("file", "name = 1\n", 3, run=False, file="stack.toml")]
    done = run("page.md", text, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "place" / "stack.toml").read_text("utf-8") == "name = 1\n"
