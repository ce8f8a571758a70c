"""Cells of a notebook, and running one as a kernel would."""

import ast
import json


def stored(path):
    """The cells as they lie in the file."""
    return json.loads(path.read_text("utf-8"))["cells"]


def cells(path, kind):
    """The texts of all cells of a kind, in their order."""
    return ["".join(cell["source"]) for cell in stored(path) if cell["cell_type"] == kind]


def run_cell(source, namespace):
    """Run a cell; the value of its last line, which a notebook would show."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), namespace)  # our own text, not a model's
    if last is not None:
        return eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
    return None
