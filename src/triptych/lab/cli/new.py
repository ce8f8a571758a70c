"""`triptych new`: write a working start of a structure, algorithm, verifier, sampler or study."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

TEMPLATES = Path(__file__).parent / "templates"


class Kind(StrEnum):
    structure = "structure"
    algorithm = "algorithm"
    verifier = "verifier"
    sampler = "sampler"
    study = "study"


NEXT = {
    Kind.structure: "Check its axioms:  triptych axioms {file}",
    Kind.algorithm: "Check its promise:  triptych axioms {file}\n"
    "See it step by step:  triptych replay {file}",
    Kind.verifier: "Check that it refuses nothing too early:  triptych axioms {file}",
    Kind.sampler: "Compare its law with its promise:  triptych law {file}",
    Kind.study: "Run and judge it:  triptych run {file}",
}


def new(
    kind: Annotated[Kind, typer.Argument(help="What to write.", show_choices=True)],
    name: Annotated[str, typer.Argument(help="Its name, or the path of its file.")],
) -> None:
    """Write a working start of your own structure or study.

    Also of an algorithm, a verifier or a sampler. The file is NAME.py. It passes its checks as it
    is; change it from there.

    Example: triptych new structure my_chain
    """
    from triptych.core.errors import UserError
    from triptych.core.files import write_text

    file = Path(name if name.endswith(".py") else f"{name}.py")
    if not file.parent.is_dir():
        raise UserError(f"there is no folder {file.parent}: make it first")
    if file.exists():
        raise UserError(f"{file} exists already: choose another name, or move it away")
    _check_name(kind, file)
    write_text(file, content(kind, file.stem))
    typer.echo(f"Wrote {file}.")
    typer.echo(NEXT[kind].format(file=file))


def content(kind: Kind, name: str) -> str:
    """The text of a new file."""
    template = (TEMPLATES / f"{kind.value}.py").read_text("utf-8")
    title = f"My{kind.value.title()}"
    return template.replace(title, _class_name(name, template)).replace(f"my_{kind.value}", name)


def _class_name(name: str, template: str) -> str:
    """my_chain -> MyChain; a name that means something else in the file gets a longer one."""
    import builtins
    import keyword
    import re

    camel = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    taken = {*re.findall(r"\w+", template), *keyword.kwlist, *vars(builtins)}
    return f"{camel}Structure" if camel in taken else camel


def _check_name(kind: Kind, file: Path) -> None:
    """Refuse a name that no module can have, or that hides another one."""
    import keyword
    import re

    from triptych.core.validation import UserError

    name = file.stem
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or keyword.iskeyword(name):
        raise UserError(
            f"{name!r} cannot be the name of a {kind.value}: use letters, digits and _, begin with "
            "a letter, and take no word of Python",
            parameter="kind",
        )
    if _hides_a_module(name):
        raise UserError(
            f"there is a Python module {name} already, and a file of that name could hide it: "
            "choose another name",
            parameter="file",
        )
    studies = Path(__file__).parents[2] / "studies"
    ours = {path.stem for path in studies.rglob("*") if path.suffix in ("", ".py")}
    if kind is Kind.study and name in ours:
        raise UserError(f"{name} is a study of Triptych: choose another name")


def _hides_a_module(name: str) -> bool:
    """Whether `import NAME` finds Python's own or an installed module."""
    import importlib.util

    from triptych.lab.running.sources import Source, is_installed

    if name in sys.stdlib_module_names or name == "triptych":
        return True
    spec = importlib.util.find_spec(name)
    file = spec.origin if spec else None
    return file is not None and is_installed(Source(name, Path(file).resolve()))
