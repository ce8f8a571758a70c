"""Our docstrings as reStructuredText: plain text with formulas, tables in columns and headings.

prose                 a paragraph; what stands between backticks is code
a heading, ----       a small heading
name    meaning       a table, where every line of a block has the same columns
name, and an          a table too, where a name has a line of its own
    indented line
indented lines        Python where it parses as such, else a formula; both as they stand
"""

import ast
import re
from collections.abc import Iterator

_GAP = re.compile(r" {2,}")
_SPECIAL = re.compile(r"([\\*`|_])")


def as_rst(lines: list[str]) -> list[str]:
    """The docstring, whose lines these are, as lines of reStructuredText.

    Worked value: the line "p(x) `a`" becomes "p(x) ``a``" and an empty line.
    """
    found: list[str] = []
    for block in _blocks(lines):
        if len(block) > 1 and re.fullmatch("-{3,}|={3,}", block[1].strip()):
            found += [f".. rubric:: {inline(block[0].strip())}", ""]
            block = block[2:]
        if block:
            found += [*_one(block), ""]
    return found


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """What empty lines separate; indented blocks that follow each other stay together."""
    block: list[str] = []
    for line in [*(line.rstrip() for line in lines), ""]:
        if line:
            block.append(line)
        elif block:
            yield block
            block = []


def _one(block: list[str]) -> list[str]:
    if (pairs := named(block)) is not None:
        return _table(pairs)
    if all(line.startswith("  ") for line in block):
        return _as_it_stands(block)
    if (rows := columns(block)) is not None:
        return _table(rows)
    if 2 * sum(bool(re.search(r"\S {2,}\S", line)) for line in block) >= len(block):
        return _as_it_stands(block)  # columns of several tables next to each other
    if any(line.startswith("  ") for line in block[1:]) and not block[0].startswith("- "):
        first = next(i for i, line in enumerate(block) if line.startswith("  "))
        if first:  # a paragraph, and under it what is indented
            return [*_one(block[:first]), "", *_one(block[first:])]
    if block[0].startswith("- "):
        return [("" if line.startswith("- ") else "  ") + inline(line.strip()) for line in block]
    prose = [_guarded(inline(line.strip())) for line in block]
    if prose[-1].endswith("::"):  # no sign that a block follows
        prose[-1] = prose[-1][:-1] + "\\:"
    return prose


def named(block: list[str]) -> list[list[str]] | None:
    """A name on a line of its own and its meaning below, indented: the pairs, or None."""
    pairs: list[list[str]] = []
    for line in block:
        if not line.startswith(" "):
            if not re.fullmatch(r"[A-Za-z_][\w.]*(, [A-Za-z_][\w.]*)*", line):
                return None
            pairs.append([f"`{name}`" for name in [line]] + [""])
        elif not pairs:
            return None
        else:
            pairs[-1][1] = f"{pairs[-1][1]} {line.strip()}".strip()
    return pairs if pairs and all(meaning for _, meaning in pairs) else None


def columns(block: list[str]) -> list[list[str]] | None:
    """Rows of cells where the lines of a block are columns; a line that begins further in goes on.

    Worked value: "a    one", "b    two", "     and more" are [a, one] and [b, two and more].
    """
    rows: list[list[str]] = []
    for line in block:
        cells = _GAP.split(line.strip())
        if line.startswith("  "):
            if not rows or len(cells) > 1:
                return None
            rows[-1][-1] += f" {cells[0]}"
        else:
            rows.append(cells)
    return rows if len({len(row) for row in rows}) == 1 and len(rows[0]) > 1 else None


def _table(rows: list[list[str]]) -> list[str]:
    found = [".. list-table::", "   :class: meanings", "   :widths: auto", ""]
    for row in rows:
        found += [f"   {'* ' if not i else '  '}- {inline(cell)}" for i, cell in enumerate(row)]
    return found


def _as_it_stands(block: list[str]) -> list[str]:
    depth = min(len(line) - len(line.lstrip()) for line in block)
    lines = [line[depth:] for line in block]
    if (rows := columns(lines)) is not None and len(rows) > 1:
        return _table(rows)
    kind = "python" if _is_python("\n".join(lines)) else "text"
    formula = ["   :class: formula"] if kind == "text" else []
    return [f".. code-block:: {kind}", *formula, "", *(f"   {line}" for line in lines)]


def _is_python(text: str) -> bool:
    try:
        parsed = ast.parse(text)
    except SyntaxError:
        return False
    calls = any(isinstance(node, ast.Call) for node in ast.walk(parsed))
    return text.isascii() and calls


def inline(text: str) -> str:
    """Prose with code between backticks; nothing else of it is markup.

    Worked value: "x_t and `f`s" is "x\\_t and ``f``\\ s".
    """
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # a backtick that is not closed is a character
        return _SPECIAL.sub(r"\\\1", text)
    found = ""
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            plain = _SPECIAL.sub(r"\\\1", piece)
            joined = i and plain and not plain[0].isspace() and plain[0] not in ".,:;!?)-'\"/"
            found += ("\\ " if joined else "") + plain
        elif piece.strip() == piece and piece:
            before = found[-1:] and not found[-1].isspace() and found[-1] not in "(-'\"/:["
            found += ("\\ " if before else "") + f"``{piece}``"
        else:
            found += f"\\`{piece}\\`"
    return found


def _guarded(line: str) -> str:
    """A line that would begin a list, a directive or a field is a line of prose."""
    return (
        f"\\{line}"
        if re.match(r"(\.\. |:\w+:|[-+*•] |\w{1,3}[.)] |\(\w{1,3}\) |>>>|=+$)", line)
        else line
    )
