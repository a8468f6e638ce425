"""`manage.py redrive`: the command line of Redrive on the ledger of a Django project."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from redrive.app.ledger_opener import VARIABLE
from redrive.cli import main
from redrive.django.project import find_project


class RedriveCommand(BaseCommand):
    """Run a command of `redrive`, such as `manage.py redrive dead list`."""

    help = "Run a command of redrive on the ledger of this project: manage.py redrive dead list"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take all words of the command."""
        parser.add_argument(
            "words", nargs=argparse.REMAINDER, metavar="COMMAND", help="Command and its options"
        )

    def handle(self, *_args: Any, words: list[str], **_options: Any) -> None:
        """Run the command, which exits with its own status.

        Raises:
            CommandError: No backend is one of Redrive, its ledger is in memory, or the command
                needs the app.
        """
        if words[:1] == ["work"]:
            raise CommandError("redrive work: it has no tasks; run `manage.py redrive_worker`")
        try:
            project = find_project(None)
            _ = project.app  # hides its secrets
            ledger = project.database.url if project.database else project.options.ledger
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        before, sys.argv = sys.argv, ["redrive", *words]
        os.environ[VARIABLE] = ledger or ""
        try:
            main()
        finally:
            sys.argv = before
            del os.environ[VARIABLE]


Command = RedriveCommand
"""The name that Django expects."""
