"""Language models in one file: weights as safetensors, and what they are in its metadata.

Large files may come in parts, NAME.part0, NAME.part1 and so on, which are read as one.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from triptych.core.errors import UserError
from triptych.core.files import write_tensors
from triptych.core.validation import as_device
from triptych.models.language_models import CausalLM, MaskedLM
from triptych.models.layers import Shape
from triptych.models.noised import NoisedLM
from triptych.models.transformer import Transformer

SavedLM = CausalLM | MaskedLM | NoisedLM
_KINDS = ("causal", "masked", "noised")


def save_lm(
    path: Path, lm: SavedLM, *, dtype: torch.dtype = torch.float32, **about: object
) -> None:
    """Write the model; `about` is kept next to its shape, as JSON."""
    weights = {
        name: value.detach().to("cpu", dtype).contiguous()
        for name, value in lm.net.state_dict().items()
    }
    if lm.net.shape.tied:  # the same numbers as the embedding
        weights.pop("output.weight")
    facts: dict[str, Any] = {"shape": asdict(lm.net.shape), "about": about}
    facts["kind"] = _kind_of(lm)
    if isinstance(lm, NoisedLM):
        facts["levels"] = lm.levels
    write_tensors(path, weights, {"lm": json.dumps(facts)})


def load_lm(
    path: Path | str, *, device: torch.device | str = "cpu"
) -> tuple[SavedLM, dict[str, Any]]:
    """The model that `save_lm` wrote, and what was said about it."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    path, device = Path(path), as_device(device)
    data = _whole(path)
    try:
        size = int.from_bytes(data[:8], "little")
        facts = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["lm"])
        shape = Shape(**{name: value for name, value in facts["shape"].items() if name != "_"})
        net = Transformer(shape, seed=0)
        weights = {name: value.float() for name, value in load(data).items()}
        if shape.tied:
            weights["output.weight"] = weights["embedding.weight"]
        net.load_state_dict(weights)
        net.to(device).eval()
        kind = facts["kind"]
        about = dict(facts["about"])
        if kind == "noised":
            return NoisedLM(net, facts["levels"]), about
        return {"causal": CausalLM, "masked": MaskedLM}[kind](net), about
    except (ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{path} is no language model that can be read here ({reason}); `save_lm` writes one",
            parameter="path",
        ) from error


def _kind_of(lm: SavedLM) -> str:
    kinds = dict(zip((CausalLM, MaskedLM, NoisedLM), _KINDS, strict=True))
    return kinds[type(lm)]


def _whole(path: Path) -> bytes:
    """The bytes of a file, or of its parts in order."""
    if path.is_file():
        return path.read_bytes()
    parts = sorted(
        path.parent.glob(f"{path.name}.part*"), key=lambda part: int(part.suffix[5:] or 0)
    )
    if not parts:
        raise UserError(f"there is no file {path}, and no {path.name}.part0", parameter="path")
    return b"".join(part.read_bytes() for part in parts)
