"""`triptych denoise`: a text with masks, a model from a folder, and what a sampler writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from triptych.core.validation import Count, UserError, as_size, as_text
from triptych.diffusion.denoiser import MaskedDenoiser
from triptych.diffusion.networks.masked_logits import load_denoiser
from triptych.diffusion.sampler import Denoised, Sampler, samplers
from triptych.models.pretrained.masked import PretrainedMaskedLM


@dataclass(frozen=True, eq=False)
class Filled:
    """Texts that were filled, and how.

    names   how each token that occurs is written on a page
    """

    texts: list[str]
    done: Denoised
    names: dict[int, str]
    title: str
    about: str


def sampler_named(name: str, changes: Sequence[str] = ()) -> Sampler:
    """The sampler with the options that a user wrote as gamma=0.1."""
    known = samplers()
    if as_text("sampler", name).replace("-", "_") not in known:
        raise UserError(
            f"there is no sampler {name!r}; there are {', '.join(known)}", parameter="sampler"
        )
    return known[name.replace("-", "_")].parse(changes)


def filled(
    text: str,
    model: str,
    sampler: str,
    changes: Sequence[str] = (),
    *,
    n: Count = 1,
    block_length: Count | None = None,
    seed: Count = 0,
    device: str = "cpu",
    record: bool = False,
    trust_remote_code: bool = False,
) -> Filled:
    """`n` texts whose masks are filled."""
    chosen, n = sampler_named(sampler, changes), as_size("n", n)
    if chosen.noise != "masks":
        raise UserError(
            f"{chosen.name} writes on uniform noise, and a text with masks has none; take a "
            "sampler of masks",
            parameter="sampler",
        )
    denoiser: Any = load_denoiser(model, device=device, trust_remote_code=trust_remote_code)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=trust_remote_code)
    lm: Any = denoiser.oracle if isinstance(denoiser, MaskedDenoiser) else denoiser
    mask = tokenizer.mask_token_id if tokenizer.mask_token_id is not None else lm.mask_id
    special = not isinstance(lm, PretrainedMaskedLM)  # that one puts its own around
    ids = tokenizer(text, add_special_tokens=special)["input_ids"]
    tokens = torch.tensor([ids], device=device).repeat(n, 1)
    hidden = tokens == mask
    if not bool(hidden.any()):
        raise UserError(
            f"the text has no mask; write {tokenizer.mask_token} where the model shall write",
            parameter="text",
        )
    done = chosen.sample(
        denoiser, tokens, hidden, rng=seed, block_length=block_length, record=record
    )
    seen = {int(token) for step in done.trace for token in step.tokens.unique().tolist()}
    seen |= set(done.tokens.unique().tolist())
    names = {token: tokenizer.convert_ids_to_tokens(token) for token in seen}
    settings = ", ".join(f"{key} {value}" for key, value in chosen.settings().items())
    return Filled(
        [tokenizer.decode(row, skip_special_tokens=True) for row in done.tokens.tolist()],
        done,
        names,
        chosen.title,
        f"{chosen.promise}. {settings}.",
    )
