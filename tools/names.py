"""Write the tables of public names from the imports that type checkers read.

    python tools/names.py            write them
    python tools/names.py --check    say which are not up to date

Each of the modules below lists its names once, under `if TYPE_CHECKING`.
"""

import ast
import re
import sys
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src"
MODULES = ("__init__", "guided", "chains", "study")
TABLE = re.compile(r"_HOME = \{.*?^\}\n", re.M | re.S)


def listed(text: str) -> dict[str, str]:
    """Name -> where it is, of the imports under `if TYPE_CHECKING`."""
    (block,) = (node for node in ast.parse(text).body if isinstance(node, ast.If))
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom), ast.unparse(node)
        assert node.module, ast.unparse(node)
        inside = node.module.partition(".")[2]
        for alias in node.names:
            assert alias.asname == alias.name, f"{ast.unparse(node)}: write it `as` its own name"
            place = [*filter(None, inside.split(".")), alias.name]
            path = SRC.joinpath("triptych", *place)
            is_module = path.with_suffix(".py").exists() or path.is_dir()
            found[alias.name] = ".".join(place) if is_module else f"{inside}:{alias.name}"
    return found


def written(text: str) -> str:
    """The module with a table that is up to date."""
    rows = "".join(f'    "{name}": "{place}",\n' for name, place in sorted(listed(text).items()))
    new, count = TABLE.subn(f"_HOME = {{\n{rows}}}\n", text)
    assert count == 1, "there is one table _HOME"
    return new


def main(arguments: list[str]) -> int:
    old = []
    for module in MODULES:
        file = SRC / "triptych" / f"{module}.py"
        text = file.read_text("utf-8")
        if text != written(text):
            old.append(str(file))
            if "--check" not in arguments:
                file.write_text(written(text), "utf-8")
    print(*(f"{file}: the table is not up to date" for file in old), sep="\n", end="")
    return int(bool(old and "--check" in arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
