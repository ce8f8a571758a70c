"""Hugging Face transformers: `generate` with its warpers, and speculative decoding."""

import functools
from typing import Any

import torch

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("transformers")

PROMPT = (0, 1, 0)
ROUNDING = 1e-6  # `generate` takes logits in float32


@functools.cache
def _tiny(seed: int, vocab_size: int = 4, scale: float = 0.5) -> Any:
    """A GPT-2 of one layer with random weights, in float64."""
    from transformers import GPT2Config, GPT2LMHeadModel

    generator = torch.Generator().manual_seed(seed)
    config = GPT2Config(
        vocab_size=vocab_size,
        n_positions=8,
        n_embd=8,
        n_layer=1,
        n_head=1,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(scale * noise)
    return model


def _next(model: Any, prefix: tuple[int, ...], temperature: float = 1.0) -> definitions.Law:
    with torch.no_grad():
        logits = model(torch.tensor([[*PROMPT, *prefix]])).logits[0, -1]
    return definitions.softmax(logits.tolist(), temperature)


def _generate(model: Any, length: int, **options: Any) -> tuple[int, ...]:
    """The tokens that `generate` writes after the prompt."""
    ids = torch.tensor([PROMPT])
    settings = {"do_sample": True, "top_k": 0, "max_new_tokens": length, "use_cache": True}
    written = model.generate(ids, attention_mask=torch.ones_like(ids), **{**settings, **options})
    return tuple(written[0, ids.shape[1] :].tolist())


def _one_token(warp: Any, **options: Any) -> Case:
    model = _tiny(0, vocab_size=7)
    return Case(
        lambda: _generate(model, 1, **options),
        {(x,): p for x, p in warp(_next(model, ())).items()},
    )


@SHELF.add(
    "generate, temperature",
    rounding=ROUNDING,
    promise="exponential scaling output probability distribution",
    source="docstring of TemperatureLogitsWarper",
    note="two tokens of a random GPT-2 at temperature 0.7",
)
def temperature() -> Case:
    model = _tiny(0)
    target = definitions.sequences(lambda prefix: _next(model, prefix, 0.7), 2)
    return Case(lambda: _generate(model, 2, temperature=0.7), target)


@SHELF.add(
    "generate, top_k",
    rounding=ROUNDING,
    promise="restricting to the k highest probability elements",
    source="docstring of TopKLogitsWarper",
    note="k = 3 of 7 tokens. With equal probabilities at the edge it keeps all of them, more than k",
)
def top_k() -> Case:
    return _one_token(lambda law: definitions.top_k(law, 3), top_k=3)


@SHELF.add(
    "generate, top_p",
    rounding=ROUNDING,
    promise="only the smallest set of most probable tokens with probabilities that add up to `top_p` or higher are kept",
    source="docstring of TopPLogitsWarper",
    note="top_p = 0.8 of 7 tokens",
)
def top_p() -> Case:
    return _one_token(lambda law: definitions.nucleus(law, 0.8), top_p=0.8)


@SHELF.add(
    "generate, min_p",
    rounding=ROUNDING,
    promise="keeps all tokens that are above a minimum probability, scaled by the probability of the most likely token",
    source="docstring of MinPLogitsWarper",
    note="min_p = 0.1 of 7 tokens",
)
def min_p() -> Case:
    return _one_token(lambda law: definitions.min_p(law, 0.1), min_p=0.1)


@SHELF.add(
    "generate, typical_p",
    rounding=ROUNDING,
    promise="prioritizes tokens whose log probability is close to the entropy of the token probability distribution",
    source="docstring of TypicalLogitsWarper",
    note="typical_p = 0.6 of 7 tokens",
)
def typical() -> Case:
    return _one_token(lambda law: definitions.typical(law, 0.6), typical_p=0.6)


@SHELF.add(
    "generate, epsilon_cutoff",
    rounding=ROUNDING,
    promise="restricting to tokens with `prob >= epsilon`",
    source="docstring of EpsilonLogitsWarper",
    note="epsilon = 0.1 of 7 tokens",
)
def epsilon() -> Case:
    return _one_token(lambda law: definitions.at_least(law, 0.1), epsilon_cutoff=0.1)


@SHELF.add(
    "generate, eta_cutoff",
    rounding=ROUNDING,
    promise="eta := min(epsilon, sqrt(epsilon * e^-entropy(probabilities)))",
    source="docstring of EtaLogitsWarper; the paper that it cites has sqrt(epsilon) * e^-entropy, and so has the code",
    note="epsilon = 0.3 of 7 tokens; held against the paper's formula",
)
def eta() -> Case:
    return _one_token(lambda law: definitions.eta(law, 0.3), eta_cutoff=0.3)


@SHELF.add(
    "generate, prompt lookup decoding",
    rounding=ROUNDING,
    promise="using **greedy decoding** or **sample** (depending on `do_sample`), assisted by candidate sequences",
    source="docstring of _assisted_decoding",
    note="two tokens after a prompt that repeats itself, so that there are drafts",
)
def prompt_lookup() -> Case:
    model = _tiny(0, 3)
    target = definitions.sequences(lambda prefix: _next(model, prefix), 2)
    return Case(lambda: _generate(model, 2, prompt_lookup_num_tokens=2), target)


@SHELF.add(
    "generate, assistant_model",
    rounding=ROUNDING,
    promise="Apply algorithm 1 from the speculative decoding paper",
    source="comment in _assisted_decoding",
    note="strings of three tokens out of two, two draft tokens: two random GPT-2s, run end to end",
)
def assisted() -> Case:
    model, assistant = _tiny(0, 2), _tiny(1, 2)
    assistant.generation_config.num_assistant_tokens = 2
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = 0.0
    target = definitions.sequences(lambda prefix: _next(model, prefix), 3)
    return Case(lambda: _generate(model, 3, assistant_model=assistant), target)


# The function that accepts and rejects, alone.


def _logits_of_two_models(draft: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random logits of a draft and a target of three tokens: the setting of `draft` draft tokens."""
    generator = torch.Generator().manual_seed(3)
    p = torch.randn(1, draft + 1, 3, dtype=torch.float64, generator=generator)
    q = torch.randn(1, draft, 3, dtype=torch.float64, generator=generator)
    return q, p


def _speculate(honest: bool, weight: float | None = None) -> Case:
    from transformers.generation.utils import _speculative_sampling

    q, p = _logits_of_two_models(2)

    def program() -> tuple[int, ...]:
        drafted = torch.multinomial(q[0].softmax(-1), 1).T if honest else q.argmax(-1)
        written, _ = _speculative_sampling(drafted, q, 2, p, weight)
        missing = 3 - written.shape[1]
        # A rejected draft ends the round: the other tokens come as later rounds would write them.
        later = torch.multinomial(verified[3 - missing :], 1)[:, 0].tolist() if missing else []
        return (*written[0].tolist(), *later)

    verified = p[0].softmax(-1)
    if weight is not None:
        verified[:2] = weight * verified[:2] + (1 - weight) * q[0].softmax(-1)
    laws = [dict(enumerate(row)) for row in verified.tolist()]
    return Case(program, definitions.product(*laws))


@SHELF.add(
    "_speculative_sampling, drafts from the declared law",
    promise="Applies sampling as in the speculative decoding paper ... algorithm 1",
    source="docstring of _speculative_sampling",
    note="three tokens, two draft tokens, random logits of torch seed 3",
)
def speculative() -> Case:
    return _speculate(honest=True)


@SHELF.add(
    "_speculative_sampling, assistant_ensemble_weight",
    promise="relaxes the verification distribution to v(x) = w * p(x) + (1 - w) * q(x)",
    source="docstring of _speculative_sampling",
    note="w = 0.7; the token after the last draft comes from p alone, for there is no q",
)
def ensemble() -> Case:
    return _speculate(honest=True, weight=0.7)


@SHELF.add(
    "_speculative_sampling, greedy drafts with raw logits declared",
    promise="Applies sampling as in the speculative decoding paper ... algorithm 1",
    source="docstring of _speculative_sampling; drafts as SinglePositionMultiTokenCandidateGenerator makes them",
    note="that generator drafts by argmax and returns the raw logits as the draft's law; "
    "algorithm 1 needs the law that the drafts were drawn from, here a point mass. "
    "Its loop was read; the acceptance was run, not a Gemma 4 from end to end",
    issue="transformers-greedy-drafts.md",
)
def greedy_drafts() -> Case:
    return _speculate(honest=False)


@SHELF.add(
    "EntropyBoundSampler of DiffusionGemma, one step",
    promise="accepting k tokens with lowest entropy, such that sum_i^k entropy_i - max(entropy_1, ..., entropy_k) <= entropy_bound",
    source="docstring of EntropyBoundSampler.accept_canvas",
    note="three positions, three tokens; the others are redrawn uniformly",
)
def entropy_bound_sampler() -> Case:
    from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
        EntropyBoundSampler,
        EntropyBoundSamplerConfig,
    )

    logits = 2 * torch.randn(
        1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    sampler = EntropyBoundSampler(EntropyBoundSamplerConfig(0.5), 3, 3, 8)
    current = torch.tensor([[0, 1, 2]])

    def program() -> tuple[int, ...]:
        drawn = torch.multinomial(logits[0].softmax(-1), 1).T
        accepted = sampler.accept_canvas(current, drawn, logits, 4)
        return tuple(sampler.renoise_canvas(accepted, 4)[0].tolist())

    laws = [definitions.softmax(row.tolist()) for row in logits[0]]
    return Case(program, definitions.product(*entropy_bounded(laws, 0.5)))


def entropy_bounded(laws: list[definitions.Law], bound: float) -> list[definitions.Law]:
    """The laws of positions accepted under an entropy bound; the others become uniform."""
    order = sorted(range(len(laws)), key=lambda i: definitions.entropy(laws[i]))
    spent = 0.0
    found = [definitions.uniform(range(len(law))) for law in laws]
    for place in order:
        if spent > bound + 1e-12:  # the sum of the entropies before it: all but the largest
            break
        found[place] = laws[place]
        spent += definitions.entropy(laws[place])
    return found
