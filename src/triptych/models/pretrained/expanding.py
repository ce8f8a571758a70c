"""The weights of a fetched .gguf file, written out once.

A .gguf file keeps weights in few bits, and reading one takes a minute: its vocabulary and merges
are read again and again, and every weight is expanded. The copy has bfloat16 weights in safetensors
and the tokenizer as transformers saves it. It takes more than twice the disk space, loads in
seconds, and gives the same model as the .gguf file loaded with dtype="bfloat16".
"""

from pathlib import Path

from triptych.core.files import replacing_folder
from triptych.core.validation import UserError
from triptych.models.pretrained import fetching
from triptych.models.pretrained.causal_loading import load_causal

_FILES = ("config.json", "model.safetensors", "tokenizer.json")


def expanded(name: str) -> Path | None:
    """The folder of a thing's expanded copy, or None if it is not here whole."""
    place = _place(name)
    return place if all((place / file).is_file() for file in _FILES) else None


def check_expandable(name: str) -> None:
    """Refuse what is no .gguf file."""
    entry = fetching.find_entry(name)
    if [Path(file.path).suffix for file in entry.files] != [".gguf"]:
        raise UserError(f"{name} is not a .gguf file, so there is nothing to expand")


def expand(name: str) -> Path:
    """The folder of the expanded copy, made if it is not here; the .gguf file must be."""
    check_expandable(name)
    if (there := expanded(name)) is not None:
        return there
    file = fetching.cached(name)
    if file is None:
        raise UserError(f"{name} is not here yet: run `triptych fetch {name}` first")
    from safetensors import SafetensorError

    model, tokenizer = load_causal(
        file, dtype="bfloat16", gguf_file=None, local_files_only=True, revision=None
    )
    place = _place(name)
    model.hf_quantizer = None  # nothing is quantised any more
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    advice = "set TRIPTYCH_CACHE to a folder with more room, that you may write to"
    with replacing_folder(place, advice=advice) as part:
        try:
            model.save_pretrained(part)
        except SafetensorError as error:  # a full disk, for one
            raise OSError(str(error)) from error
        tokenizer.save_pretrained(part)
    return place


def _place(name: str) -> Path:
    return fetching.cache_folder() / f"{fetching.find_entry(name).name}-expanded"
