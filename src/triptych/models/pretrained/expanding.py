"""A fetched .gguf file written out in bfloat16, in a folder with the name of the model.

It is the same model as the .gguf file loaded with dtype="bfloat16", and takes more than twice the
disk space. The folder can be taken to a machine that has no reader of .gguf files.
"""

from pathlib import Path

from triptych.core.validation import UserError
from triptych.models.pretrained import fetching
from triptych.models.pretrained.causal_loading import load_causal
from triptych.models.pretrained.copies import is_whole, write_copy


def expanded(name: str) -> Path | None:
    """The folder of a thing's expanded copy, or None if it is not here whole."""
    place = _place(name)
    return place if is_whole(place) else None


def check_expandable(name: str) -> None:
    """Refuse what is no .gguf file."""
    entry = fetching.find_entry(name)
    if [Path(file.path).suffix for file in entry.files] != [".gguf"]:
        raise UserError(
            f"{name} is not a .gguf file, so there is nothing to expand", parameter=name
        )


def expand(name: str) -> Path:
    """The folder of the expanded copy, made if it is not here; the .gguf file must be."""
    check_expandable(name)
    if (there := expanded(name)) is not None:
        return there
    file = fetching.fetched(name)
    model, tokenizer = load_causal(
        file, dtype="bfloat16", gguf_file=None, local_files_only=True, revision=None
    )
    place = _place(name)
    write_copy(place, model, tokenizer)
    return place


def _place(name: str) -> Path:
    return fetching.cache_folder() / f"{fetching.find_entry(name).name}-expanded"
