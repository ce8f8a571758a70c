"""`triptych replay`: a small exact generation, replayed in a page.

The options of an algorithm (`--quota 4`) come from its record. They are read when the command runs
or its help is shown, so that `triptych --help` imports nothing heavy.
"""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from triptych.lab.plain_text import echo

if TYPE_CHECKING:
    from triptych.inference.guided.algorithm import AnyAlgorithm, Option

_OFFERED = "triptych.replay.algorithms"  # whose options there are


class ReplayCommand(TyperCommand):
    """A command that also takes the options of the algorithms, of a user's own file, or of ising.

    `--quota 4` is read as `--set quota=4`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        offered = _offered(args)
        ctx.meta[_OFFERED] = offered
        options = [option for record in offered for option in record.options()]
        if "ising" in args:
            from triptych.lab.replay.ising import OPTIONS

            options = list(OPTIONS)
        return super().parse_args(ctx, _as_settings(args, options))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The options of the command, then those of the algorithms and of ising."""
        super().format_options(ctx, formatter)
        offered = ctx.meta.get(_OFFERED) or _offered([])
        with formatter.section("Algorithms"):
            formatter.write_dl([(record.name, record.promise) for record in offered])
        with formatter.section("Options of the algorithms"):
            formatter.write_dl(_help_lines(offered))
        from triptych.lab.replay.ising import OPTIONS

        with formatter.section("Options of ising"):
            formatter.write_dl(
                [
                    (
                        f"{each.flag} <{each.type.__name__}>",
                        f"{each.meaning}  [default: {each.default}]",
                    )
                    for each in OPTIONS
                ]
            )


def _offered(args: Iterable[str]) -> "list[type[AnyAlgorithm]]":
    """The algorithm of a user's file, if one is named; else all."""
    from triptych.inference.guided.algorithm import algorithms
    from triptych.lab.replay.demonstrations import find_algorithm

    for arg in args:
        if arg.endswith(".py"):
            return [find_algorithm(arg)]
    return list(algorithms().values())


def _as_settings(args: list[str], options: "Iterable[Option]") -> list[str]:
    """The same words, with `--set` for these options.

    Worked value: --quota 4 --seed 1 --no-lazy are --set quota=4 --seed 1 --set lazy=no.
    """
    known = {option.flag: option for option in options}
    negated = {f"--no-{flag[2:]}": o for flag, o in known.items() if o.type is bool}
    found: list[str] = []
    words = iter(args)
    for word in words:
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        if word == "--":
            found += [word, *words]
        elif flag in negated and not equals:
            found += ["--set", f"{negated[flag].name}=no"]
        elif flag not in known:
            found.append(word)
        elif equals:
            found += ["--set", f"{known[flag].name}={value}"]
        elif known[flag].type is bool:
            found += ["--set", f"{known[flag].name}=yes"]
        elif (following := next(words, None)) is None:
            raise typer.BadParameter(f"{flag} needs a value")
        else:
            found += ["--set", f"{known[flag].name}={following}"]
    return found


def _help_lines(offered: "list[type[AnyAlgorithm]]") -> list[tuple[str, str]]:
    """Each option once, with the algorithms that have it and its value in their replays."""
    having: dict[str, list[tuple[type[AnyAlgorithm], Option]]] = {}
    for record in offered:
        for option in record.options():
            having.setdefault(option.flag, []).append((record, option))
    lines = []
    for flag, users in sorted(having.items()):
        first = users[0][1]
        shown = f" <{'|'.join(first.choices) or first.type.__name__}>"
        if first.type is bool:
            shown = f" / --no-{flag[2:]}"
        defaults = {str(option.default) for _, option in users}
        told = "; ".join(
            f"{record.name} {option.default}" if len(defaults) > 1 else record.name
            for record, option in users
        )
        default = "" if len(defaults) > 1 else f"  [default: {first.default}]"
        lines.append((flag + shown, f"{first.meaning} ({told}){default}"))
    return lines


def replay(
    algorithm: Annotated[
        str,
        typer.Argument(
            help="One of the algorithms below, or a Python file of your own; or refinement, which "
            "writes all positions at once, again and again; or ising, Gibbs sampling next to "
            "parallel decoding on a grid of spins. A .json file is an answer of the gateway that "
            "has its trace."
        ),
    ] = "backtracking",
    task: Annotated[
        str | None,
        typer.Option(
            help="dyck, zeros, parity, some-zero or attention; for refinement orders, split-words "
            "or dialects.  [default: dyck, orders]"
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Random seed of the draws and of the verifier's noise.")
    ] = 0,
    length: Annotated[
        int | None, typer.Option(help="Tokens of a string, prompt included; the task's own.")
    ] = None,
    prompt: Annotated[str, typer.Option(help="What every row begins with, as '[(' or 01.")] = "",
    rows: Annotated[int, typer.Option(help="Strings to generate; the page has one at a time.")] = 1,
    noise: Annotated[
        float,
        typer.Option(
            help="How often the verifier is wrong before the end; for vgb, particles and adaptive, "
            "its value is off by a factor of up to 1 + NOISE."
        ),
    ] = 0.0,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="OPTION=VALUE",
            help="Set an option of the algorithm; --quota 4 is short for --set quota=4.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="A second algorithm on the same task, shown next to the first; for ising parallel "
            "or blocks.  [default: for ising, parallel]"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="HTML file, written over if it is there.  [default: replay.html, or the first of "
            "replay-2.html, replay-3.html, … that is free]"
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Replay a guided generation, step by step, in one page.

    The page has the tree of visited prefixes, what the verifier said, and what was asked so far.
    docs/replay.md shows how to replay runs and algorithms of your own.

    A refinement has the options steps, stutter and sample.

    Example: triptych replay backtracking --task dyck --quota 4 --stride 4
    Example: triptych replay backtracking --against vgb --task dyck
    Example: triptych replay ising --size 6 --coupling 0.4 --against parallel
    """
    out = out or _free(Path("replay.html"))
    if algorithm.endswith(".json"):
        _saved(Path(algorithm), out)
        if show:
            typer.launch(str(out))
        return
    if algorithm == "ising":
        refused = {"task": task, "length": length, "prompt": prompt or None, "noise": noise or None}
        _refuse_for_ising(refused | {"rows": None if rows == 1 else rows})
        _ising(against or "parallel", seed=seed, changes=changes or [], out=out)
        if show:
            typer.launch(str(out))
        return
    if algorithm == "refinement":
        if against is not None:
            from triptych.core.validation import UserError

            raise UserError(
                "--against compares guided algorithms; a refinement has none next to it",
                parameter="against",
            )
        _refinement(task or "orders", rows=rows, seed=seed, changes=changes or [], out=out)
        if show:
            typer.launch(str(out))
        return
    from triptych.lab.replay import demonstrations
    from triptych.lab.replay.comparison import Side, write_comparison
    from triptych.lab.replay.page import write_trace

    names = [algorithm] if against is None else [algorithm, against]
    chosen = [demonstrations.find_algorithm(name) for name in names]
    demo = demonstrations.demonstration(task or "dyck", length=length, seed=seed)
    sides, told = list[Side](), ""
    for record, own in zip(chosen, _shared_out(changes or [], chosen), strict=True):
        chosen_one = record.parse(own)
        verifier, told = demonstrations.noisy(demo, soft=record.soft, noise=noise, seed=seed)
        result = demonstrations.generate(
            chosen_one, demo, verifier, prompt=prompt, rows=rows, seed=seed
        )
        correct = demo.correct(result)
        listed = ", ".join(
            f"{key}\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{value}"
            for key, value in chosen_one.settings().items()
        )
        settings = f"{told} {listed}." if listed else told
        ends = zip(result.tokens, result.lengths.tolist(), strict=True)
        texts = [demo.text(tokens[:end].tolist()) for tokens, end in ends]
        sides.append(Side(record.title, result, texts, correct, demo.names, settings))
        if against is not None:
            typer.echo(f"{record.title}:")
        echo("\n".join(demonstrations.summary(demo, result, correct)))
    if against is None:
        only = sides[0]
        write_trace(
            only.result,
            out,
            names=only.names,
            title=f"{only.title}: {demo.title}",
            about=f"{demo.about} {told}",
            correct=only.correct,
            settings=only.settings.removeprefix(told).strip(),
        )
    else:
        title = f"{' against '.join(side.title for side in sides)}: {demo.title}"
        write_comparison(sides, out, title=title, about=demo.about)
    typer.echo(f"Open {out}")
    if show:
        typer.launch(str(out))


def _free(path: Path) -> Path:
    """This path, or with the first number from 2 on under which nothing is there."""
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    return next(place for place in itertools.chain([path], numbered) if not place.exists())


def _shared_out(changes: list[str], chosen: "list[type[AnyAlgorithm]]") -> list[list[str]]:
    """For each algorithm the changes of its options; what no algorithm has goes to the first.

    Worked value: quota=4 goes to backtracking alone, and to it and another that has a quota.
    """
    known = [{option.name for option in record.options()} for record in chosen]
    shared: list[list[str]] = [[] for _ in chosen]
    for change in changes:
        name = change.partition("=")[0].strip().replace("-", "_")
        having = [place for place, options in enumerate(known) if name in options]
        for place in having or [0]:  # which refuses it
            shared[place].append(change)
    return shared


def _refinement(task: str, *, rows: int, seed: int, changes: list[str], out: Path) -> None:
    """Refine sentences of a known truth, and write the page."""
    from triptych.core.validation import UserError
    from triptych.lab.replay import refinements
    from triptych.lab.replay.refinement_page import write_refinement

    settings = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise UserError(f"--set {change}: write it as OPTION=VALUE")
        settings[name] = value
    made = refinements.replayed(task, rows=rows, seed=seed, settings=settings)
    write_refinement(
        made.refined,
        out,
        made.lengths,
        names=made.sentences.names,
        title="Refinement: all positions at once",
        about=refinements.about(made.sentences),
        headings=[f"Start {row + 1}" for row in range(rows)],
    )
    echo("\n".join(made.lines()))
    typer.echo(f"Open {out}")


def _saved(path: Path, out: Path) -> None:
    """Write the page of a trace that was saved."""
    from triptych.lab.replay.page import write_trace
    from triptych.lab.replay.saved import read_trace

    saved = read_trace(path)
    write_trace(saved.result, out, names=saved.names, title=saved.title, about=saved.about)
    echo("\n".join(saved.lines()))
    typer.echo(f"Open {out}")


def _refuse_for_ising(given: Mapping[str, object]) -> None:
    """Options that say nothing about a grid of spins."""
    from triptych.core.validation import UserError
    from triptych.lab.replay.ising import option_names

    for name, value in given.items():
        if value is not None:
            raise UserError(
                f"--{name} {value} says nothing about a grid of spins; ising has {option_names()}"
            )


def _ising(against: str, *, seed: int, changes: list[str], out: Path) -> None:
    """Run two samplers of spins on a grid, and write the page."""
    from triptych.lab.replay import ising
    from triptych.lab.replay.ising_page import write_spins

    made = ising.replayed(against, seed=seed, settings=ising.parse(changes))
    write_spins(made, out)
    echo("\n".join(made.lines()))
    typer.echo(f"Open {out}")
