"""The classes behind every command: help, lazy loading, groups of options, old names of options."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar, NamedTuple, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

F = TypeVar("F", bound=Callable[..., Any])
RENAMED_OPTIONS = {
    "--quiet": "--heartbeat-timeout",
    "--error": "--reason",
    "--until-moment": "--until-time",
}
"""Old names. Each works in a command that has the new name and no option of the old name."""
VALIDATOR_MESSAGES = {
    r"^Input should be a valid integer\b.*": "must be a whole number, such as 42",
    r"^Input should be a valid number\b.*": "must be a number, such as 0.5",
    r"^Input should be greater than or equal to\b": "must be at least",
    r"^Input should be less than or equal to\b": "must be at most",
    r"^Input should be greater than\b": "must be more than",
    r"^Input should be less than\b": "must be less than",
    r"^Value error, ": "",
}
"""Messages of the validator inside Typer, and their replacements."""
_SECTION = re.compile(r"^(Examples|Exit codes):\n", re.MULTILINE)
_UsageError: Any = typer.BadParameter.__base__  # Newer versions of Typer include Click.
_EXTRA_LEDGER = re.compile(
    r"^Got unexpected extra argument(?:\(s\))? \(([\w.]+:[\w.]+|[\w+]+://[^\s@]*)\)"
)
"""A message about an argument that looks like an app, or an address without a password."""
_EXIT_CODE = re.compile(r"^\s*(\d+): (.+)$")


class CliCommand(TyperCommand):
    """A command. The sections `Examples:` and `Exit codes:` of its docstring end its help."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        parts = _SECTION.split(self.help or "")
        sections = dict(zip(parts[1::2], parts[2::2], strict=True))
        self.help = parts[0].strip()
        examples = sections.get("Examples", "").splitlines()
        self.examples = [line.strip() for line in examples if line.strip()]
        self.exit_codes = _parse_exit_codes(sections.get("Exit codes", ""))

    @property
    def summary(self) -> str:
        """The first line of the help: verb and object."""
        return " ".join((self.help or "").partition("\n\n")[0].split())

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return `[OPTIONS] ID [ITEM]...`, with brackets around optional arguments."""
        pieces = [self.options_metavar] if self.options_metavar else []
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                name = param.metavar or str(param.name).upper()
                repeats = "..." if param.nargs != 1 else ""
                pieces.append((name if param.required else f"[{name}]") + repeats)
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options, each with its default."""
        arguments, options = [], []
        for param in self.get_params(ctx):
            if getattr(param, "hidden", False):
                continue
            if param.param_type_name == "argument":
                arguments.append((param.metavar or str(param.name).upper(), param_help(param)))
            else:
                options.append((option_names(param, ctx), param_help(param)))
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples and the exit codes."""
        if self.examples:
            formatter.write("\nExamples:\n" + "".join(f"  {line}\n" for line in self.examples))
        if self.exit_codes:
            with formatter.section("Exit codes"):
                formatter.write_dl([(str(code), text) for code, text in self.exit_codes.items()])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, with old option names replaced. Refuse a repeated single-value option."""
        own = {name for param in self.get_params(ctx) for name in param.opts}
        renamed = {
            old: new for old, new in RENAMED_OPTIONS.items() if new in own and old not in own
        }
        words = [_replace_option_name(word, renamed) for word in args]
        if not ctx.resilient_parsing:
            self._check_values(ctx, words)
        try:
            return list(super().parse_args(ctx, words))
        except typer.BadParameter as error:
            for pattern, replacement in VALIDATOR_MESSAGES.items():
                error.message = re.sub(pattern, replacement, error.message)
            raise
        except _UsageError as error:
            ledger = _EXTRA_LEDGER.search(error.message)
            if ledger is not None and "--ledger" in own:
                error.message += f"; pass the ledger as --ledger {ledger[1]}"
            raise

    def _check_values(self, ctx: Any, words: list[str]) -> None:
        """Refuse repeated options and empty values.

        The parser would take the last value. An empty value comes from a shell variable that is not
        set. Either way the command would act on another selection than the user expects.
        """
        parser: Any = self.make_parser(ctx)
        values, _, passed = parser.parse_args(args=list(words))
        for param, times in Counter(passed).items():
            value = values.get(param.name)
            if "" in (value if isinstance(value, (list, tuple)) else [value]):
                fix = f"pass {_missing_value(param)}" if param.required else "leave it out"
                message = f"empty value; {fix}, or check the shell variable"
                raise typer.BadParameter(message, ctx=ctx, param=param)
            is_option = times > 1 and param.param_type_name == "option"
            if is_option and not (param.multiple or param.is_flag or param.count):
                message = f"passed {times} times; pass it once"
                raise typer.BadParameter(message, ctx=ctx, param=param)


def _missing_value(param: Any) -> str:
    return "a reason" if param.name == "because" else "a value"


class CommandGroup(typer.Typer):
    """A group of commands, such as `redrive dead`."""

    def __init__(self, *, help: str) -> None:  # noqa: A002  # Typer's name
        super().__init__(no_args_is_help=True, help=help)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        """Register a command. Parameters that are dataclasses are groups of options."""

        def register(function: F) -> F:
            add: Callable[[Any], Any] = super(CommandGroup, self).command(
                name, cls=CliCommand, **settings
            )
            add(expand_option_groups(function))
            return function

        return register


def expand_option_groups(function: Callable[..., Any], /) -> Callable[..., Any]:
    """Replace each parameter whose type is a dataclass by an option for each field.

    Typer has no groups of options. A dataclass with annotated fields declares the options that
    several commands share, and a command receives them as one object.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters: list[Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in signature(function).parameters.values():
        group = hints[parameter.name]
        if is_dataclass(group):
            groups[parameter.name] = group
            parameters += _parameters_of(group)
        else:
            parameters.append(parameter.replace(annotation=group, kind=Parameter.KEYWORD_ONLY))
    if not groups:
        return function

    @wraps(function)
    def command(**values: Any) -> Any:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        return function(**values)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # read by Typer
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _parameters_of(group: Any) -> Iterator[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = Parameter.empty if field.default is MISSING else field.default
        yield Parameter(
            field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]
        )


class LazyCommand(NamedTuple):
    """A command whose module is imported when the command runs."""

    target: str
    """`module:name` inside `redrive.cli.commands`: a function, or a CommandGroup."""
    help: str
    """The summary, without a full stop."""
    section: str
    """Section of `redrive --help`."""
    is_alias: bool = False

    def load(self, name: str, /) -> Any:
        """Import the module and build the command."""
        module, _, attribute = self.target.partition(":")
        function = getattr(import_module(f".commands.{module}", __package__), attribute)
        if isinstance(function, typer.Typer):
            function.rich_markup_mode = None
            command: Any = typer.main.get_group(function)
        else:
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(name, cls=CliCommand)(expand_option_groups(function))
            command = typer.main.get_command(single)
        command.name = name
        if self.is_alias:
            command.help = self.help
        return command


class LazyGroup(TyperGroup):
    """A group that loads a command only when it runs. Belongs to one run of the command line."""

    table: ClassVar[Mapping[str, LazyCommand]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {
            name: TyperCommand(name, help=lazy.help) for name, lazy in self.table.items()
        }
        self._needs_names_only = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command, or None if there is none of this name."""
        lazy = self.table.get(cmd_name)
        if lazy is None or self._needs_names_only:
            return self.commands.get(cmd_name)
        return lazy.load(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write names and summaries by section, without loading a command."""
        sections: dict[str, list[tuple[str, str]]] = {}
        longest = max(map(len, self.table))
        for name, lazy in self.table.items():
            sections.setdefault(lazy.section, []).append((name.ljust(longest), lazy.help))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete names without loading a command."""
        with self._names_only():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _names_only(self) -> Iterator[None]:
        self._needs_names_only = True
        try:
            yield
        finally:
            self._needs_names_only = False


def param_help(param: Any, /) -> str:
    """Return the help of an argument or option, with its default or "(required)"."""
    text = (param.help or "").strip()
    default = param.default
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    if param.param_type_name == "option" and param.required:
        return f"{text} (required)"
    is_shown = param.show_default and default is not None
    if is_shown and not isinstance(default, bool) and not callable(default):
        return f"{text} (default: {default})"
    return text


def option_names(param: Any, ctx: Any, /) -> str:
    """Return `--follow, -f`, `--limit N` or `--order [newest|oldest]`."""
    names = ", ".join(sorted(param.opts, key=lambda name: (len(name) == 2, name)))
    return names if param.is_flag else f"{names} {param.display_type_rich(ctx=ctx)}"


def _parse_exit_codes(text: str) -> dict[int, str]:
    codes: dict[int, str] = {}
    for line in text.splitlines():
        match = _EXIT_CODE.match(line)
        if match:
            codes[int(match[1])] = match[2]
        elif line.strip():
            codes[max(codes)] += f" {line.strip()}"  # the description continues
    return codes


def _replace_option_name(word: str, renamed: Mapping[str, str]) -> str:
    name, equals, value = word.partition("=")
    return f"{renamed[name]}{equals}{value}" if name in renamed else word
