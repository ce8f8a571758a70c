"""Read a corpus with a model, and measure its topics: what `triptych topics` does."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from triptych.core.validation import UserError, as_count, as_list
from triptych.lab.generating.settings import find_model
from triptych.models.pretrained.documents import DOCSTRINGS, docstring_versions, read_documents
from triptych.models.pretrained.encoder import PretrainedEncoder
from triptych.studies.api.study import Rows
from triptych.theory.topics.real_text import (
    GROUPS,
    ReadText,
    Record,
    Sizes,
    Tell,
    measure,
    word_map,
)


@dataclass(frozen=True)
class Reading:
    """What was read with what, and all records."""

    model: str
    family: str
    corpus: str
    sizes: Sizes
    seeds: int
    records: list[Record] = field(repr=False)

    @property
    def rows(self) -> Rows[Record]:
        return Rows(self.records)

    def to_json(self) -> dict[str, Any]:
        """The records by class, and the settings; versions of packages for docstrings."""
        kinds: dict[str, list[Any]] = {}
        for record in self.records:
            kinds.setdefault(type(record).__name__, []).append(asdict(record))
        versions = docstring_versions() if self.corpus == DOCSTRINGS else {}
        about = {"model": self.model, "family": self.family, "corpus": self.corpus}
        sizes = {"sizes": asdict(self.sizes), "seeds": self.seeds, "versions": versions}
        return {**about, **sizes, "records": kinds}


def read_topics(
    model: str,
    corpus: str,
    sizes: Sizes,
    *,
    seeds: int = 1,
    groups: Sequence[Sequence[str]] = (),
    random_copy: bool = True,
    tell: Tell | None = None,
) -> Reading:
    """Fit and measure, once for every seed of LDA; without groups, the words of the source."""
    seeds, tell = as_count("seeds", seeds, at_least=1), tell or (lambda what: None)
    where = find_model(model)
    documents = read_documents(corpus)
    if len(documents) < sizes.topics:
        raise UserError(
            f"the corpus {corpus!r} has {len(documents)} documents, too few for {sizes.topics} "
            f"topics; give more text, or --topics {max(2, len(documents) // 5)}"
        )
    tell(f"loading {model}")
    _without_bars()
    encoder = PretrainedEncoder.from_pretrained(where, name=model)
    records: list[Record] = [word_map(encoder, groups or GROUPS)]
    tell(f"reading {len(documents)} documents")
    text = ReadText.of(encoder, documents)
    for seed in range(seeds):
        records += measure(encoder, text, sizes, seed=seed, random_copy=random_copy, tell=tell)
    return Reading(model, encoder.family, corpus, sizes, seeds, records)


def parse_groups(given: Sequence[str]) -> list[list[str]]:
    """Worked value: ["frog,toad", "mozart, schubert"] are two groups of two words."""
    found = []
    for text in as_list("--group", given, "words with commas between them"):
        words = [word.strip() for word in text.split(",") if word.strip()]
        if len(words) < 2:
            raise UserError(f"--group {text!r} needs two words or more, as --group frog,toad")
        found.append(words)
    if len(found) == 1:
        raise UserError("one --group is given; give two or more, to compare words between them")
    return found


def _without_bars() -> None:
    """The bars of transformers would stand among our lines."""
    try:
        from transformers.utils import logging
    except ModuleNotFoundError:
        return  # the model says what is missing
    logging.disable_progress_bar()
