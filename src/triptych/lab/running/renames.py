"""Names of the library that were renamed, and mean what they meant.

The shape of a study (`shape.py`) writes today's name as the one that it had when the bundled rows
were made, so that renaming breaks no seal. A name stands here as long as such rows do, and longer
than the library knows it under its old name (`core/deprecation.py`). Each table is today's name ->
the earlier one.

An attribute is known by its name alone, because nobody knows here whose it is. It is therefore left
as it stands in a study whose own classes have an attribute of either name.
"""

from collections.abc import Mapping

ATTRIBUTES: Mapping[str, str] = {
    "log_posterior": "posterior",
    "log_set_posterior": "set_posterior",
}
KEYWORDS: Mapping[str, Mapping[str, str]] = {
    "attention.AttentionHead.random": {"vocab_size": "vocab"},
    "conditionals.every_next_token_log_probs": {"lm": "oracle"},
    "corpus.Corpus.draw": {"n": "count"},
    "encoder_decoder.EncoderDecoder.likely_lengths": {"n": "count"},
    "essential.random_with_zeros": {"vocab_size": "vocab"},
    "exact.RatioValue": {"lm": "model"},
    "gibbs.block_log_probs": {"lm": "oracle"},
    "gibbs.step": {"lm": "oracle"},
    "grammar.Grammar.on": {"lm": "model"},
    "guide.check_language_model": {"lm": "model"},
    "guide.guide": {"lm": "model"},
    "guide.guide_each": {"lm": "model"},
    "guide.make_job": {"lm": "model"},
    "hmm.HMM.random": {"vocab_size": "vocab"},
    "hmm.HMM.random_permutation_mixture": {"vocab_size": "vocab"},
    "hmm.HMM.random_sparse": {"vocab_size": "vocab"},
    "ideal.TabledRefiner.of": {"vocab_size": "vocab"},
    "ideal.corruption": {"vocab_size": "vocab"},
    "ideal.hypotheses": {"vocab_size": "vocab"},
    "kernels.Conditionals.of": {"lm": "oracle"},
    "language_models.in_precision": {"lm": "model"},
    "loop.check_tokens": {"lm": "model"},
    "loop.fit": {"lm": "model"},
    "loop.half_copy": {"lm": "model"},
    "loop.loss_of_answers": {"lm": "model"},
    "memory_hmm.MemoryHMM.random": {"vocab_size": "vocab"},
    "memory_hmm.MemoryHMM.random_permutation_mixture": {"vocab_size": "vocab"},
    "parallel.block_step": {"lm": "oracle"},
    "parallel.independent_step": {"lm": "oracle"},
    "parallel.most_confident": {"n": "count"},
    "parallel.unmask": {"lm": "oracle"},
    "probes.train_probe": {"lm": "model"},
    "prompts.Tuning": {"lm": "model"},
    "prompts.random_names": {"n": "count"},
    "read_text.ReadText.passages": {"n": "number"},
    "refinement.MaskedRefiner": {"lm": "oracle"},
    "refinement.random_start": {"vocab_size": "vocab"},
    "sequences.as_chains": {"lm": "oracle"},
    "sequences.check_oracle": {"lm": "oracle"},
    "sequences.laws_at": {"lm": "oracle"},
    "sequences.masked_answer": {"lm": "oracle"},
    "streaming.guide_stream": {"lm": "model"},
    "text_models.as_prompts": {"n": "number"},
    "vocabulary.Vocabulary.of": {"lm": "model"},
    "word_pairs.permutation": {"n": "number"},
    "word_pairs.top_pairs": {"n": "number"},
}
DEFINITIONS: Mapping[str, str] = {
    "enumeration.ExactLaw": "enumeration.Law",
    "figures.SeriesKind": "figures.Kind",
    "grammar.GrammarKind": "grammar.Kind",
    "result.ParticleSet": "result.Particles",
    "uniform_attention.BlockMeans": "uniform_attention.Blocks",
    "verdicts.CheckRule": "verdicts.Rule",
}
