"""Run units of a study on a machine that has torch, numpy, scipy, jaxtyping and safetensors alone.

    python tools/units_on_gpu.py triptych.studies.tuning.head_vs_prompt.study \
        --scale paper --device cuda --workers 3 --out FOLDER --set hidden=30

The same units and rows as `triptych run`, without its terminal, verdicts and report. What is done
is in FOLDER after every unit; a second call does the rest. On the machine where the report is made,
`triptych export --out FOLDER` writes the rows to `evidence/`.
"""

import argparse
import time
from pathlib import Path

from triptych.lab.running.discovery import load_study
from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import run_study
from triptych.lab.running.selection import parse_assignments
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale


class Lines:
    """Progress as lines of text."""

    def begin(self, study: str, units: int, skipped: int, workers: int) -> None:
        self.study, self.units, self.done = study, units, 0
        self.say(f"{units} units to run, {skipped} are done, {workers} workers")

    def started(self, unit: str) -> None:
        self.say(f"begins: {unit}")

    def ended(self, unit: str, seconds: float, error: str | None) -> None:
        self.done += 1
        said = "done" if error is None else f"FAILED: {error.splitlines()[-1][:300]}"
        self.say(f"[{self.done}/{self.units}] {unit}: {seconds:.0f} s, {said}")

    def end(self) -> None:
        self.say("over")

    def say(self, text: str) -> None:
        print(time.strftime("%H:%M:%S"), f"{self.study}:", text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", help="a module with STUDY")
    parser.add_argument("--scale", choices=[scale.value for scale in Scale], default="paper")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    study, overrides = load_study(options.study), parse_assignments(options.set)
    plan = Plan.of(study, Scale(options.scale), overrides, options.seeds)
    with Store.open(options.out) as store:
        found = run_study(
            plan,
            store=store,
            workers=options.workers,
            device=options.device,
            progress=Lines(),
            old_rows="keep",
        )
    print(f"{found.done} units done, {found.failed} failed, {found.skipped} were there", flush=True)


if __name__ == "__main__":
    main()
