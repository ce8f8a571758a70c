"""`python -m benchmarks [--readme]`: run, print a table, save results.json.

With --readme the table between the markers of README.md is replaced by the new one.
"""

import argparse
import itertools
import json
import re
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import guided, hmm, lab, network
from benchmarks.table import markdown, readable
from triptych.lab.environment import environment

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
MARKED = re.compile(r"(<!-- benchmarks -->\n).*?(<!-- /benchmarks -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readme", action="store_true", help="update the table in README.md")
    update = parser.parse_args().readme
    torch.set_num_threads(1)
    console = Console()
    rows = []
    for row in itertools.chain(hmm.run(), network.run("cpu"), guided.run("cpu"), lab.run()):
        console.print(" | ".join(readable(row)), highlight=False)
        rows.append(row)
    table = Table(box=None, header_style="bold")
    for title in ("what", "against", "ours", "theirs", "ratio", "bar"):
        table.add_column(title)
    for row in rows:
        table.add_row(*readable(row))
    console.print(table)
    results = {"environment": environment(), "rows": rows}
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    if update:
        text = README.read_text()
        README.write_text(MARKED.sub(lambda m: m[1] + markdown(rows) + m[2], text))


if __name__ == "__main__":
    main()
