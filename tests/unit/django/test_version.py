"""What users without Django 6 see."""

from __future__ import annotations

import subprocess
import sys

import django
import pytest

PROGRAM = """
import sys
{before}
try:
    import redrive.django
    redrive.django.Backend
except ImportError as error:
    print(error)
"""


def run_in_process(before: str) -> str:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.req("X-2")
def test_missing_django_names_the_extra() -> None:
    assert run_in_process("sys.modules['django'] = None") == ('redrive.django needs Django: pip install "redrive[django]"\n')


@pytest.mark.req("X-2")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 has Django 6 or newer")
def test_old_django_is_named_with_the_version_that_is_needed() -> None:
    assert run_in_process("") == (
        "redrive.django: tasks, worker and console need Django 6.0 or newer (which needs Python 3.12), and this is Django "
        f"{django.get_version()}; "
        'pip install "redrive[django]", or use redrive.App without redrive.django\n'
    )
