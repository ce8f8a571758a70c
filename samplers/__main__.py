"""`python -m samplers [--only LIBRARY] [--draws N] [--json] [--page]`: laws of strangers' samplers.

Writes src/triptych/lab/laws/released.json; with --only the rows of other libraries stay as they were recorded. With --page
the table of docs/samplers.md is made from them. With --json rows go to the terminal, and nothing is written.
The exit status is 0 whatever the verdicts are: a broken promise is a finding.
"""

import argparse
import importlib
import json
import logging
import sys
import warnings
from dataclasses import replace
from typing import Any

import torch

from samplers import page, quotes
from samplers.judging import Row, judged
from samplers.record import LIBRARIES, installed_version
from triptych.core.files import write_json, write_text
from triptych.lab.laws.released import RECORDED as RESULTS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m samplers", description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=LIBRARIES, metavar="LIBRARY", help="one library alone")
    parser.add_argument("--draws", type=int, default=0, help="draws that check a broken promise")
    parser.add_argument("--json", action="store_true", help="rows as JSON")
    parser.add_argument("--page", action="store_true", help="write docs/samplers.md")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of strangers' code, about its own future
    logging.disable(logging.WARNING)
    rows: list[Row] = []
    for name in [asked.only] if asked.only else LIBRARIES:
        for sampler in importlib.import_module(f"samplers.{name}").SHELF.samplers:
            row = judged(sampler, draws=asked.draws)
            rows.append(replace(row, quoted=bool(row.version) and not quotes.missing(sampler)))
            if not asked.json:
                print(page.line(rows[-1]), flush=True)
    if asked.json:
        json.dump([row.record() for row in rows], sys.stdout, indent=2, ensure_ascii=False)
        print()
        return
    print(page.counts(rows))
    if asked.only and RESULTS.exists():
        rows = _among_others(rows, json.loads(RESULTS.read_text())["rows"])
    versions = {name: installed_version(name) for name in ("python", "torch", "numpy")}
    write_json(RESULTS, {"versions": versions, "rows": [row.record() for row in rows]}, indent=2)
    if asked.page:
        write_text(page.PAGE, page.with_table(page.PAGE.read_text(), rows))


def _among_others(rows: list[Row], recorded: list[dict[str, Any]]) -> list[Row]:
    """New rows with those that were recorded of other packages, in the order of the libraries."""
    packages = [importlib.import_module(f"samplers.{name}").SHELF.package for name in LIBRARIES]
    new = {row.package for row in rows}
    others = [Row.of(record) for record in recorded if record["package"] not in new]
    return sorted([*rows, *others], key=lambda row: packages.index(row.package))


if __name__ == "__main__":
    main()
