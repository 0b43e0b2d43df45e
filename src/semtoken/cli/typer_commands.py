"""Which commands there are, each loaded when it is used, their `--help`, and what is checked before one runs."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_group

from semtoken.errors import InvalidInput

if TYPE_CHECKING:
    from rich.table import Table


ESSENTIAL: dict[str, tuple[str, ...]] = {
    "ask": ("model", "tokens", "also", "parts", "as_json", "calibrator", "preset", "max_new_tokens"),
    "score": ("output", "model", "tokens", "parts", "calibrator", "preset", "overwrite", "batch_size"),
    "check": ("questions", "top", "output", "schema", "calibrator", "tokens", "as_json", "tokenizer"),
    "calibrate": ("output", "journal", "alpha", "delta", "promise", "label", "model", "overwrite"),
    "compare": ("model", "limit", "methods", "judge", "controls", "csv", "preset"),
    "decide run": ("output", "model", "reading", "orders", "endpoint", "name", "calibrator"),
    "bench lm-eval": ("tasks", "model", "limit", "num_fewshot", "calibrator", "json", "preset"),
    "cluster make": ("output", "n_clusters", "algorithm", "embedding", "memory_budget"),
    "bench run": ("out_folder", "model", "dataset", "methods", "judge", "limit", "dry_run", "estimate"),
    "bench judge": ("judges", "output", "llm_model", "base_url", "key_env", "verdicts_file", "column", "overwrite"),
}
"""Options by command, with its group, that `--help` shows, besides the arguments; of other commands it shows all."""


ALL = "--help-all"
_RANGE = re.compile(r"; ([\d.]+<=?)?x([<>]=?[\d.]+)?(?=\])|\s{0,9}\[([\d.]+<=?)?x([<>]=?[\d.]+)?\]")
"""What click says of a number's range, such as "x>=1"."""


class ShortHelp(TyperCommand):
    """A command whose `--help` shows the essential options; `--help-all` shows all of them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; `--help-all` shows the whole help, whatever else is there."""
        if ALL in args[: args.index("--") if "--" in args else len(args)]:
            self._write(ctx, whole=True)
            raise typer.Exit
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless it would write over what it reads; what it has written is its own from then on."""
        from semtoken.support.files.outputs import remember

        path = ctx.command_path.partition(" ")[2]
        outputs = check_outputs(self, ctx.params, path)
        result = super().invoke(ctx)
        for output in outputs:
            remember(output, path)
        return result

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the essential options, and how to see the others."""
        self._write(ctx, whole=False)

    def _write(self, ctx: Any, *, whole: bool) -> None:
        from rich.console import Console
        from rich.markdown import Markdown
        from rich.padding import Padding

        console = Console(highlight=False, emoji=False)
        console.print(self.get_usage(ctx), markup=False, soft_wrap=True)
        text, examples = examples_apart(inspect.cleandoc(self.help or ""))
        console.print(f"For example: {examples[0]}\n" if examples else "", markup=False)
        console.print(Padding(Markdown(text), (0, 2)))
        if len(examples) > 1:
            console.print("\nFurther examples", style="bold")
            for example in examples[1:]:
                console.print(Padding(example, (0, 2)), markup=False)
        titled, left_out = self.titled_params(ctx, whole=whole)
        for title, params in titled.items():
            console.print(f"\n{title}", style="bold")
            console.print(_two_columns(params, ctx))
        if left_out:
            console.print(f"\nThe other {left_out} options: {ctx.command_path} {ALL}", markup=False)

    def titled_params(self, ctx: Any, *, whole: bool) -> tuple[dict[str, list[Any]], int]:
        """The arguments and options by the titles that they stand under in the help, and how many it leaves out."""
        options = [param for param in self.params if isinstance(param, TyperOption) and not param.hidden]
        names = {param.name: param for param in options}
        essential = ESSENTIAL.get(ctx.command_path.partition(" ")[2], names)
        titled: dict[str, list[Any]] = {
            "Arguments": [param for param in self.params if not isinstance(param, TyperOption)],
            "Options": [names[name] for name in (names if whole else essential) if name in essential],
        }
        others = [param for param in options if whole and param.name not in essential]
        for param in sorted(others, key=lambda param: param.rich_help_panel is None):  # rarely needed ones last
            titled.setdefault(param.rich_help_panel or "Rarely needed", []).append(param)
        left_out = 0 if whole else len(options) - len(titled["Options"])
        return {title: params for title, params in titled.items() if params}, left_out


def examples_apart(help: str) -> tuple[str, list[str]]:
    """A help text without its examples, and the examples as they are typed."""
    text, _, rest = help.partition("For example:")
    examples = [" ".join(example.split()) for example in re.split(r"^- ", rest, flags=re.MULTILINE)]
    return text.strip(), [example.replace("`", "") for example in examples if example]


class CommandGroup(TyperGroup):
    """Commands that belong together, such as those of `decide`, with help in the form of all others."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write what the commands are for, the first one's first example before them."""
        helps = {name: examples_apart(inspect.cleandoc(command.help or "")) for name, command in self.commands.items()}
        summaries = {name: _plain(text.partition("\n\n")[0]) for name, (text, _) in helps.items()}
        print_commands(self, ctx, {"Commands": summaries}, next(iter(helps.values()))[1][0])


def print_commands(group: Any, ctx: Any, summaries: Mapping[str, Mapping[str, str]], example: str = "") -> None:
    """Print the help of several commands: what they are for, the options, and by title each with its summary."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, emoji=False)
    console.print(group.get_usage(ctx), markup=False, soft_wrap=True)
    console.print(f"For example: {example}\n" if example else "", markup=False)
    for paragraph in inspect.cleandoc(group.help or "").split("\n\n"):
        console.print(Padding(Text(_plain(paragraph)), (0, 2, 1, 2)))
    for title, commands in summaries.items():
        table = Table.grid(padding=(0, 2))
        table.add_column(min_width=2 + max(len(name) for names in summaries.values() for name in names))
        for name, summary in commands.items():
            table.add_row(Text(f"  {name}", style="cyan"), Text(summary))
        console.print(title, style="bold")
        console.print(table)
    table = Table.grid(padding=(0, 2))
    for option in group.get_params(ctx):
        if (record := option.get_help_record(ctx)) is not None:
            table.add_row(Text(f"  {record[0]}", style="cyan"), Text(record[1]))
    console.print("\nOptions", style="bold")
    console.print(table)


def _plain(paragraph: str) -> str:
    return " ".join(paragraph.split()).replace("`", "")


def _two_columns(params: Sequence[Any], ctx: Any) -> Table:
    """Names and what they are for, in two columns."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for names, told in described(params, ctx):
        table.add_row(Text(f"  {names}", style="cyan"), Text(told.replace("`", "")))
    return table


def described(params: Sequence[Any], ctx: Any) -> Iterator[tuple[str, str]]:
    """Each parameter's names, and what it is for with its choices."""
    annotations = inspect.signature(ctx.command.callback, eval_str=True).parameters
    for param in params:
        if isinstance(param, TyperOption):
            record = param.get_help_record(ctx)
            names, told = ", ".join((*param.opts, *param.secondary_opts)), record[1] if record else ""
            if choices := _choices(annotations[param.name or ""].annotation):
                told = f"{told} One of {', '.join(choices)}."
        else:
            names, told = param.metavar or (param.name or "").upper(), param.help or ""
        yield names, _RANGE.sub("", told)


def _choices(annotation: Any) -> tuple[str, ...]:
    """The names that an option of this type can have; none for numbers, texts and so on."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next(filter(None, map(_choices, get_args(annotation))), ())


class CommandPlace(NamedTuple):
    """The module and function in which a command, or a group of commands, is defined."""

    module: str
    """The name of its module in `semtoken.cli`."""
    name: str
    """The name, in that module, of a function or of a `typer.Typer`."""
    summary: str
    """What the command is for: the first paragraph of its help."""


GROUPS: Mapping[str, Mapping[str, CommandPlace]] = {
    "Ask and score": {
        "ask": CommandPlace("ask", "ask", "Ask a model; see its answer, how sure it is, and of which words it is not."),
        "score": CommandPlace("score", "score", "Score a file of prompts, or of prompts with responses, line by line."),
        "demo": CommandPlace(
            "demo", "demo", "See a small model answer: what it is sure of, what it doubts, and what else it considered."
        ),
    },
    "Replies": {
        "check": CommandPlace("check", "check", "Show which of your saved answers to check first, and why."),
        "view": CommandPlace(
            "view", "view", "Make one HTML page of scored answers: riskiest first, with a slider and keys for labels."
        ),
    },
    "Decide": {
        "calibrate": CommandPlace(
            "calibrate",
            "calibrate",
            "Make a calibrator from labelled answers: the chance of being right, a threshold with a promise, a report.",
        ),
        "decide": CommandPlace("decide", "app", "Ask typed questions, calibrate the answers, audit another server."),
        "watch": CommandPlace(
            "watch", "watch", "Is the promise of the calibrator in use still kept? Look as often as you like."
        ),
    },
    "Serve": {},
    "Compare": {
        "compare": CommandPlace(
            "compare",
            "compare",
            "Compare the headline with STC and fifteen other methods on questions whose answers are known.",
        ),
        "bench": CommandPlace(
            "bench", "app", "The paper's experiment on any model: answers, uncertainties, judgements, tables."
        ),
    },
    "Look after": {
        "cluster": CommandPlace(
            "cluster",
            "app",
            "Make the clusters of a model's tokens; look into them, list and remove them.",
        ),
    },
}
"""The commands by what somebody wants, in the order of the help."""

PLACES: Mapping[str, CommandPlace] = {name: place for group in GROUPS.values() for name, place in group.items()}


class CommandsOnDemand(Mapping[str, Any]):
    """The commands by name, as `typer` runs them. The module of a command is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        place = PLACES[name]
        command = getattr(importlib.import_module(f"semtoken.cli.{place.module}"), place.name)
        alone = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)
        if isinstance(command, typer.Typer):
            alone.add_typer(command, name=name)
        else:
            alone.command(name, cls=ShortHelp)(command)
        return get_group(alone).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


FORCE = "force"


def output_names(command: TyperCommand) -> list[str]:
    """The parameters of a command that name what it writes."""
    signature = inspect.signature(command.callback, eval_str=True)  # type: ignore[arg-type]
    annotations = {
        name: getattr(parameter.annotation, "__metadata__", ()) for name, parameter in signature.parameters.items()
    }
    return [
        name for name, metadata in annotations.items() if any(getattr(option, "writable", False) for option in metadata)
    ]


def check_outputs(command: TyperCommand, values: dict[str, Any], path: str) -> list[Path]:
    """Refuse, before any work, outputs that would destroy an input, each other or another file, or cannot be written.
    Returns what the command may write.

    What it writes are its options with `writable=True`; all other files and folders are read. Without --force, where it
    has that, it replaces only files of its own. `values` are its parameters, `path` its name, as in "journal export".
    """
    from semtoken.support.files.outputs import check_not_read, check_own
    from semtoken.support.files.safe_files import check_place

    names = output_names(command)
    outputs = [Path(values[name]) for name in names if values.get(name) not in (None, "-", Path("-"))]
    read = [named for name, value in values.items() if name not in names for named in _texts(value)]
    for place, output in enumerate(outputs):
        check_not_read([output], read)
        if any(output.absolute() == other.absolute() for other in outputs[:place]):
            raise InvalidInput(f"{output} is named for two outputs. Give each its own name. Nothing was written.")
        if values.get(FORCE) is False:
            check_own(output, path)
        check_place(output)
    return outputs


def _texts(value: Any) -> Iterator[str | Path]:
    """Whatever in a parameter may name a file: itself, and the parts of `nq=FOLDER`, `one,two` and `mine.py:score`."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, str):
        pieces = re.split("[,=]", value)
        named = [
            value,
            *pieces,
            *(part.rpartition(":")[0] for part in pieces),
            re.sub(r"^sqlite(\+\w+)?:///", "", value),
        ]
        yield from filter(None, named)  # an empty text is no path, though `Path` takes it for the working directory
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
