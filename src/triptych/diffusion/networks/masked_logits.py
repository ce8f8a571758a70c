"""Masked diffusion networks that answer logits: LLaDA, Dream, and any masked LM of Hugging Face.

A network is asked with the token ids of the canvas, the mask's id where a position is hidden, and
answers `.logits` (or logits themselves) at all positions. Dream was made of a causal model and
answers one position early: `shift=True`. `never` are ids that it may not write, the mask's own
among them.

Where a token is shown the answer is what the network says there, not a point mass: planners of P2
and edits read it. LLaDA and Dream bring Python code of their own, which is run only when asked for.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from triptych.core.foreign_models import as_place, on_disk_alone, refuse_own_code
from triptych.core.validation import (
    Count,
    UserError,
    as_count,
    as_device,
    as_flag,
    as_list,
    as_size,
    check_callable,
    set_fields,
)
from triptych.diffusion.denoiser import Canvas, Denoiser
from triptych.models.pretrained.masked import PretrainedMaskedLM


@dataclass(frozen=True, eq=False)
class MaskedLogits:
    """A network on token ids with a mask, as a denoiser of masks.

    The law is the softmax of the logits without the ids in `never`, in float32 or better.

    Worked value: logits log(1, 2, 1) with the mask's id 2: the law of the other two is (⅓, ⅔).
    """

    model: Any = field(repr=False)  # (input_ids=...) -> logits, as models of transformers have it
    mask_id: int
    vocab_size: int
    never: tuple[int, ...] = ()
    shift: bool = False
    rows_at_once: int = 64

    def __post_init__(self) -> None:
        check_callable("model", self.model, "model(input_ids=ids)")
        vocab_size = as_size("vocab_size", self.vocab_size)
        never = [as_count("never", one) for one in as_list("never", self.never, "token ids")]
        mask_id = as_count("mask_id", self.mask_id)
        if mask_id >= vocab_size:
            raise UserError(
                f"mask_id is {mask_id}; the network's ids are 0..{vocab_size - 1}",
                parameter="mask_id",
            )
        set_fields(
            self,
            mask_id=mask_id,
            vocab_size=vocab_size,
            never=tuple(sorted({mask_id, *never})),
            shift=as_flag("shift", self.shift),
            rows_at_once=as_size("rows_at_once", self.rows_at_once),
        )
        if isinstance(self.model, nn.Module):
            self.model.eval()
            self.model.requires_grad_(False)

    @torch.no_grad()
    def clean_log_probs(
        self, canvas: Canvas, asked: Bool[Tensor, "rows length"]
    ) -> Float[Tensor, "asked vocab"]:
        """The softmax of the logits at the asked positions."""
        if bool(canvas.noisy.any()):
            raise UserError(
                "this network knows masks, and the sampler writes on uniform noise; take a sampler "
                "of masks"
            )
        ids = canvas.tokens.masked_fill(canvas.hidden, self.mask_id)
        parts = zip(ids.split(self.rows_at_once), asked.split(self.rows_at_once), strict=True)
        return torch.cat([self._laws(part, at) for part, at in parts])

    def _laws(
        self, ids: Int[Tensor, "rows length"], at: Bool[Tensor, "rows length"]
    ) -> Float[Tensor, "asked vocab"]:
        answer = self.model(input_ids=ids)
        logits = getattr(answer, "logits", answer)
        if not isinstance(logits, Tensor) or logits.shape != (*ids.shape, self.vocab_size):
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise UserError(
                f"the network answered {shape}; it must answer logits of shape "
                f"{(*ids.shape, self.vocab_size)}",
                parameter="model",
            )
        if self.shift:
            at = at.clone()
            places = torch.nonzero(at)
            taken = logits[places[:, 0], (places[:, 1] - 1).clamp(min=0)]
        else:
            taken = logits[at]
        taken = taken.to(torch.promote_types(taken.dtype, torch.float32)).clone()
        taken[:, list(self.never)] = -torch.inf
        return taken.log_softmax(-1)


def load_denoiser(
    name: str | Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    local_files_only: bool = False,
    trust_remote_code: bool = False,
    mask_id: Count | None = None,
    shift: bool | None = None,
) -> Denoiser:
    """A diffusion language model from a folder or the Hugging Face hub.

    A masked LM of transformers, DiffusionGemma, or, with trust_remote_code=True, a model with code
    of its own that answers logits, as LLaDA and Dream. Of such a one `mask_id` and `shift` are read
    from its configuration where it says them (Dream's are).
    """
    from triptych.diffusion.denoiser import MaskedDenoiser
    from triptych.diffusion.networks.diffusion_gemma import DiffusionGemmaDenoiser

    device, place = as_device(device), as_place("name", name, "a folder or a name on the hub")
    trust_remote_code = as_flag("trust_remote_code", trust_remote_code)
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "pretrained models need transformers, which is not installed: "
            "pip install 'transformers>=5,<6'",
            name=error.name,
        ) from error
    where: dict[str, Any] = {
        "local_files_only": on_disk_alone(place, local_files_only),
        "trust_remote_code": trust_remote_code,
    }
    try:
        config = transformers.AutoConfig.from_pretrained(place, **where)
        if config.model_type == "diffusion_gemma":
            block: Any = transformers.DiffusionGemmaForBlockDiffusion.from_pretrained(
                place, dtype=dtype, local_files_only=where["local_files_only"]
            )
            return DiffusionGemmaDenoiser(block.to(device))
        if not getattr(config, "auto_map", None):
            lm = PretrainedMaskedLM.from_pretrained(
                place, device=device, dtype=dtype, local_files_only=local_files_only
            )
            return MaskedDenoiser(lm)
        model = transformers.AutoModel.from_pretrained(place, dtype=dtype, **where)
    except ValueError as error:
        refuse_own_code(place, error)
        raise UserError(
            f"{place!r} is no model that transformers can load: {error}", parameter="name"
        ) from error
    mask = getattr(config, "mask_token_id", None) if mask_id is None else mask_id
    if mask is None:
        raise UserError(
            f"the configuration of {place!r} does not say which id its mask has; pass mask_id "
            "(LLaDA: 126336)",
            parameter="mask_id",
        )
    early = config.model_type.lower() == "dream" if shift is None else shift
    return MaskedLogits(model.to(device), int(mask), int(config.vocab_size), shift=early)
