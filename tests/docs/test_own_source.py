"""The source of docs/how-to/engines/own-source.md passes the suite of sources, as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "engines" / "own-source.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
NAMES: dict[str, Any] = {"__name__": __name__}
exec(BLOCKS[0] + next(block for block in BLOCKS if "class TestFolder" in block), NAMES)


@pytest.mark.req("E-1")
class TestFolder(NAMES["TestFolder"]):  # type: ignore[misc,valid-type]
    pass
