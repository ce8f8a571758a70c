"""What `triptych audit-grammar` finds out, as plain data.

documents   where the engine and `jsonschema` disagree, and the shortest document that shows it
bending     how many nats the mask takes the model from its own law of right texts
mending     what adaptive particles and VGB cost, which draw from that law
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Decoder, Question
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.inference.guided import adaptive, tokenwise, vgb
from triptych.inference.guided.result import Result
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.structures.markov import Markov
from triptych.verifiers.grammars.audit import Audit, audit
from triptych.verifiers.grammars.bending import Bending, estimated, exactly
from triptych.verifiers.grammars.documents import documents, written
from triptych.verifiers.grammars.engines import Engine, as_engine, engine_version
from triptych.verifiers.grammars.features import complaints
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.verifier import GrammarVerifier
from triptych.verifiers.grammars.vocabulary import Vocabulary

SMALL = "markov"
"""The model that needs no files: a random Markov chain on the characters of small documents."""
_MOST_CHARACTERS = 40


def read_schema(file: Path) -> Any:
    """The schema in a file."""
    try:
        return json.loads(file.read_bytes())
    except OSError as error:
        raise UserError(
            f"the schema in {str(file)!r} cannot be read ({error.strerror or error})",
            parameter="file",
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"the schema {str(file)!r} is not JSON: {error}", parameter="file"
        ) from error


def audited(schema: Any, engine: Engine, *, tries: int, seed: int) -> dict[str, Any]:
    """What was found about the documents."""
    found: Audit = audit(schema, as_engine(engine), tries=tries, seed=seed)
    return {
        "engine": engine,
        "version": engine_version(engine),
        "refused": found.refused,
        "documents": found.documents,
        "valid": found.valid,
        "disagreements": [one._asdict() for one in found.disagreements],
        "known": [] if found.refused else [one.sentence for one in complaints(schema, engine)],
        "agrees": found.agrees,
    }


def bent(
    schema: Any, engine: Engine, *, model: str, prompt: str, tokens: int, texts: int, seed: int
) -> dict[str, Any]:
    """What the mask does to a model's law, and what the two cures cost."""
    asked = _Asked(schema, engine, model, prompt, tokens)
    bending = asked.bending(texts, seed)
    return {
        "model": model,
        "prompt": prompt,
        "tokens": tokens,
        "bending": bending._asdict(),
        "mending": [
            _cost("tokenwise", tokenwise.sample, asked, texts, seed, {}),
            _cost("adaptive", adaptive.sample, asked, texts, seed, {"n": 4}),
            _cost("vgb", vgb.sample, asked, texts, seed, {"steps": 8 * tokens}),
        ],
    }


class _Asked:
    """A model, a prompt and a grammar on it."""

    def __init__(self, schema: Any, engine: Engine, model: str, prompt: str, tokens: int) -> None:
        grammar = Grammar.from_json_schema(schema)
        if model == SMALL:
            vocabulary, self._lm = small_model(schema, tokens)
            self._prompt: list[int] = []
            self._decoder: Callable[[int], Decoder] = lambda n: RecomputingDecoder(self._lm, n)
        else:
            self._lm = lm = PretrainedCausalLM.from_pretrained(model)
            vocabulary = Vocabulary.of(lm)
            self._prompt = lm.encode([prompt])[0]
            self._decoder = lambda n: lm.decoder([prompt] * n)
        self.verifier: GrammarVerifier = grammar.on(vocabulary, engine, strict=False)
        self.length, self.ends = tokens, vocabulary.ends

    def decoder(self, n: int) -> Decoder:
        """One that holds the prompt in n rows."""
        return self._decoder(n)

    @property
    def whole(self) -> int:
        """Tokens of a full row."""
        return len(self._prompt) + self.length

    def bending(self, texts: int, seed: int) -> Bending:
        """By all texts where they are few, by draws elsewhere."""
        if isinstance(self._lm, Markov):
            found = exactly(self._lm, self.verifier, length=self.length)
            if found is not None:
                return found
        decoder, rng = self.decoder(texts), TorchRng(seed)
        return estimated(decoder, self.verifier, length=self.length, rng=rng)


def small_model(schema: Any, length: int) -> tuple[Vocabulary, Markov]:
    """Characters of the shortest documents around a schema, an end, and a chain on them."""
    characters: dict[str, None] = dict.fromkeys('{}[]",:0')
    for document in documents(schema, 200):
        more = [c for c in written(document) if c not in characters]
        if len(characters) + len(more) <= _MOST_CHARACTERS:
            characters.update(dict.fromkeys(more))
    tokens = [*characters, ""]
    size, generator = len(tokens), torch.Generator().manual_seed(0)
    laws = torch.rand((size + 1, size), generator=generator, dtype=torch.float64)
    laws = laws / laws.sum(-1, keepdim=True)
    return Vocabulary(tokens, (size - 1,)), Markov(laws[0], laws[1:], length)


def _cost(
    name: str,
    sample: Callable[..., Result[Any]],
    asked: _Asked,
    texts: int,
    seed: int,
    options: dict[str, Any],
) -> dict[str, Any]:
    """What an algorithm pays for an accepted text."""
    made = sample(
        asked.decoder(texts),
        asked.verifier,
        length=asked.whole,
        end_token=list(asked.ends),
        rng=TorchRng(seed),
        **options,
    )
    over, rows = torch.ones_like(made.accepted), torch.arange(texts)  # cut-off texts too
    whole = Question(made.tokens, made.lengths, made.prompt_lengths, over, rows)
    accepted = int((made.complete & (asked.verifier.log_values(whole) == 0)).sum())
    totals = made.costs.totals()
    return {
        "algorithm": name,
        "texts": texts,
        "accepted": accepted,
        "tokens per accepted": _per(totals["generated"], accepted),
        "questions per accepted": _per(totals["verifier_calls"], accepted),
        "seconds": round(float(totals["seconds"]), 3),
    }


def _per(total: int | float, accepted: int) -> float | None:
    return round(total / accepted, 2) if accepted else None


def sentences(found: dict[str, Any]) -> list[str]:
    """The same for a terminal."""
    name = f"{found['engine']} {found['version'] or '(not installed)'}"
    if found["refused"] is not None:
        lines = [f"{name} does not read this schema.", found["refused"]]
    else:
        lines = [f"{name}: {found['documents']} documents, {found['valid']} of them right"]
        verbs = {
            "accepts": "accepts what is wrong",
            "refuses": "refuses what is right",
            "form": "refuses one form",
        }
        for one in found["disagreements"]:
            lines.append(f"  {verbs[one['what']]}:  {one['text']}   ({one['why']})")
        if found["agrees"]:
            lines.append("  no document on which it and jsonschema disagree")
        lines += [f"  known: {sentence}" for sentence in found["known"]]
    if "bending" in found:
        lines += _bending_lines(found)
    return lines


def _bending_lines(found: dict[str, Any]) -> list[str]:
    bending = found["bending"]
    of = "exact, of all" if bending["exact"] else "95 % interval, of"
    interval = "" if bending["exact"] else f" [{bending['low']:.4g}, {bending['high']:.4g}]"
    lines = [
        f"model {found['model']}, at most {found['tokens']} tokens:",
        f"  the mask bends its law by {bending['nats']:.4g}{interval} nats "
        f"({of} {bending['texts']} texts)",
        f"  right texts have the mass exp({bending['log_right']:.4g}); unfinished with the mask: "
        f"{bending['unfinished']:.3g}",
    ]
    for cost in found["mending"]:
        if cost["accepted"]:
            lines.append(
                f"  {cost['algorithm']}: {cost['accepted']} of {cost['texts']} accepted, "
                f"{cost['tokens per accepted']:g} tokens and {cost['questions per accepted']:g} "
                "questions for each"
            )
        else:
            lines.append(f"  {cost['algorithm']}: none of {cost['texts']} accepted")
    return lines
