"""Read a corpus with a model, and measure its topics: what `triptych topics` does."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from triptych.core.validation import UserError, as_count, as_list
from triptych.lab.generating.progress import hide_bars
from triptych.lab.generating.settings import find_model
from triptych.models.pretrained.documents import (
    DOCSTRINGS,
    Document,
    docstring_versions,
    read_documents,
)
from triptych.models.pretrained.encoder import PretrainedEncoder
from triptych.studies.api.study import Rows
from triptych.theory.topics import real_text
from triptych.theory.topics.read_text import ReadText, Sizes, Tell, fit_text
from triptych.theory.topics.real_text import GROUPS, measure, word_map
from triptych.theory.topics.topic_mixtures import TopicMixture, topic_mixtures

Record = real_text.Record | TopicMixture


@dataclass(frozen=True)
class Reading:
    """What was read with what, and all records.

    paragraphs      whether every paragraph counted as a document
    """

    model: str
    family: str
    corpus: str
    sizes: Sizes
    seeds: int
    records: list[Record] = field(repr=False)
    paragraphs: bool = False

    @property
    def rows(self) -> Rows[Record]:
        return Rows(self.records)

    def to_json(self) -> dict[str, Any]:
        """The records by class, and the settings; versions of packages for docstrings."""
        kinds: dict[str, list[Any]] = {}
        for record in self.records:
            kinds.setdefault(type(record).__name__, []).append(asdict(record))
        versions = docstring_versions() if self.corpus == DOCSTRINGS else {}
        about: dict[str, Any] = {"model": self.model, "family": self.family, "corpus": self.corpus}
        about |= {"paragraphs": self.paragraphs}
        sizes = {"sizes": asdict(self.sizes), "seeds": self.seeds, "versions": versions}
        return {**about, **sizes, "records": kinds}


def read_topics(
    model: str,
    corpus: str,
    sizes: Sizes,
    *,
    seeds: int = 1,
    groups: Sequence[Sequence[str]] = (),
    paragraphs: bool = False,
    random_copy: bool = True,
    trust_remote_code: bool = False,
    tell: Tell | None = None,
) -> Reading:
    """Fit and measure, once for every seed of LDA; without groups, the words of the source.

    With `paragraphs` every paragraph of the corpus is a document of its own. trust_remote_code=True
    runs the Python files of the model itself, with all your rights.
    """
    seeds, tell = as_count("seeds", seeds, at_least=1), tell or (lambda what: None)
    where = find_model(model)
    documents = read_documents(corpus)
    if paragraphs:
        documents = [[paragraph] for document in documents for paragraph in document]
    if len(documents) < sizes.topics:
        raise UserError(_too_few(corpus, documents, sizes.topics))
    tell(f"loading {model}")
    hide_bars()
    encoder = PretrainedEncoder.from_pretrained(
        where, name=model, trust_remote_code=trust_remote_code
    )
    records: list[Record] = []
    if groups or all(encoder.word_tokens(word) for group in GROUPS for word in group):
        records.append(word_map(encoder, groups or GROUPS))
    else:
        tell("no map of words, because the model does not know the nine of the source; see --group")
    tell(f"reading {len(documents)} documents")
    text = ReadText.of(encoder, documents)
    for seed in range(seeds):
        fitted = fit_text(encoder, text, sizes, seed=seed, tell=tell)
        records += measure(
            encoder, text, sizes, seed=seed, fitted=fitted, random_copy=random_copy, tell=tell
        )
        records += topic_mixtures(encoder, text, fitted, sizes)
    return Reading(model, encoder.family, corpus, sizes, seeds, records, paragraphs)


def _too_few(corpus: str, documents: Sequence[Document], topics: int) -> str:
    """What a user can do about a corpus with fewer documents than topics."""
    number, pieces = len(documents), sum(map(len, documents))
    advice = ["give more text"]
    if number > 1:
        advice.append(f"--topics {max(2, number // 5)}")
    if pieces > number:
        advice.append(f"--paragraphs, which makes its {pieces} paragraphs documents")
    return (
        f"the corpus {corpus!r} has {number} document{'s' * (number > 1)}, too few for {topics} "
        f"topics; {', or '.join(advice)}"
    )


def parse_groups(given: Sequence[str]) -> list[list[str]]:
    """Worked value: ["frog,toad", "mozart, schubert"] are two groups of two words."""
    found = []
    for text in as_list("--group", given, "words with commas between them"):
        words = [word.strip() for word in text.split(",") if word.strip()]
        if len(words) < 2:
            raise UserError(f"--group {text!r} needs two words or more, as --group frog,toad")
        found.append(words)
    if len(found) == 1:
        raise UserError(
            "one --group is given; give two or more, to compare words between them",
            parameter="given",
        )
    return found
