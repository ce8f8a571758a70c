"""Audit the grammar engines on every feature of JSON Schema, and write down what was found.

    python tools/grammar_features.py

It writes src/triptych/verifiers/grammars/features.json and the table of docs/grammars.md. Engines
that are not installed keep what the file has of them.
"""

import json
import re
from pathlib import Path

from triptych.core.files import write_text
from triptych.verifiers.grammars.engines import ENGINES, engine_version
from triptych.verifiers.grammars.features import FEATURES, known, measured

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "src/triptych/verifiers/grammars/features.json"
PAGE = ROOT / "docs/grammars.md"
BEGIN, END = "<!-- features: begin -->", "<!-- features: end -->"
WORDS = {
    "kept": "yes",
    "form": "yes, in one form",
    "partly": "yes, or refuses",
    "refused": "refuses",
}


def main() -> None:
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    for engine in ENGINES:
        version = engine_version(engine)
        if version is not None:
            features = {name: said._asdict() for name, said in measured(engine).items()}
            found[engine] = {"version": version, "features": features}
    write_text(FILE, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    known.cache_clear()
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    write_text(PAGE, f"{before}{BEGIN}\n{table()}\n{END}{after}")


def table() -> str:
    """The features as a table of Markdown."""
    names = [f"{engine} {known(engine).version}" for engine in ENGINES]
    lines = ["| feature | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for feature in FEATURES:
        cells = []
        for engine in ENGINES:
            said = known(engine).said[feature.name]
            if said.verdict in WORDS:
                cells.append(WORDS[said.verdict])
            else:
                does = "accepts" if said.verdict == "wide" else "refuses"
                cells.append(f"**{does} `{said.text}`** for `{json.dumps(said.schema)}`")
        name = re.sub(r"\$\w+", r"`\g<0>`", feature.name)  # a dollar begins a formula
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(line.replace("\n", " ") for line in lines)


if __name__ == "__main__":
    main()
