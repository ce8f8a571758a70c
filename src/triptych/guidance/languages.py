"""A grammar as a regular language of tokens, for canvases: an automaton instead of an engine.

A regular expression and choices are regular; of a JSON schema it is one spelling of each value
(`verifiers.grammars.json_pattern`). Behind a text stand end tokens and whatever else writes
nothing, to the end of the canvas. A token that holds part of a character, as some bytes do, is left
out.
"""

import numpy as np
import torch

from triptych.core.validation import UserError, shown
from triptych.diffusion.guided.automaton import Automaton
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.json_pattern import pattern_of
from triptych.verifiers.grammars.vocabulary import Vocabulary
from triptych.verifiers.text_rules.regular import RegexPrefix

MAX_STATES = 5_000


def automaton_of(grammar: Grammar, vocabulary: Vocabulary) -> Automaton:
    """Rows of tokens that read as a text of the grammar, with nothing behind its end.

    A row that is cut off at a right text is right too. Worked value: for the choices "a" and "ab"
    of the tokens a, b and an end token: a, ab, a<end>, ab<end><end> and so on.
    """
    if not isinstance(grammar, Grammar) or not isinstance(vocabulary, Vocabulary):
        raise UserError(
            f"grammar and vocabulary are {shown(grammar)} and {shown(vocabulary)}; they must be a "
            "Grammar and a Vocabulary",
            parameter="grammar",
        )
    if grammar.kind == "lark":
        raise UserError(
            "a Lark grammar is read by an engine, from left to right; a regular language is made "
            "of a regular expression, choices or a JSON schema",
            parameter="grammar",
        )
    pattern = pattern_of(grammar.schema) if grammar.kind == "json_schema" else grammar.pattern
    pieces = [_as_text(token) for token in vocabulary.tokens]
    table = RegexPrefix(pattern).over_pieces(pieces, MAX_STATES)
    states, size = table.following.shape
    following = np.full((states + 1, size), -1, dtype=np.int64)
    following[:states] = table.following
    ends = list(vocabulary.ends)
    silent = [i for i, token in enumerate(vocabulary.tokens) if not token]
    following[np.ix_(np.nonzero(table.matches)[0], ends)] = states
    following[states, silent] = states
    accepting = np.append(table.matches, True)
    return Automaton(torch.from_numpy(following), torch.from_numpy(accepting))


def _as_text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return ""
