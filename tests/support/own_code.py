"""Tiny models whose folders bring Python of their own, which leaves a marker when it runs."""

import json
from pathlib import Path

from tests.support.tiny_encoder import tiny_bert, word_tokenizer
from tests.support.tiny_model_folder import save_tiny_model
from tests.support.tiny_text_model import tiny_classifier, tiny_tokenizer

AUTO_CLASSES = {
    "causal": "AutoModelForCausalLM",
    "masked": "AutoModelForMaskedLM",
    "encoder": "AutoModel",
    "reward": "AutoModelForSequenceClassification",
}
PARENTS = {
    "causal": ("Llama", "LlamaForCausalLM"),
    "masked": ("Bert", "BertForMaskedLM"),
    "encoder": ("Bert", "BertModel"),
    "reward": ("Bert", "BertForSequenceClassification"),
}
CODE = """\
from pathlib import Path
from transformers import {family}Config, {parent}

Path({marker!r}).write_text("it ran")

class OwnConfig({family}Config):
    model_type = "own_{kind}"

class OwnModel({parent}):
    config_class = OwnConfig
"""


def save_own_model(kind: str, folder: Path) -> Path:
    """A folder that transformers can load by its own Python alone; where the marker will be."""
    marker = folder.parent / f"{folder.name}.ran"
    if kind == "causal":
        save_tiny_model(folder)
    elif kind == "reward":
        tiny_classifier(family="bert").save_pretrained(folder)
        tiny_tokenizer().save_pretrained(folder)
    else:
        _bert(kind).save_pretrained(folder)
        word_tokenizer().save_pretrained(folder)
    file = folder / "config.json"
    config = json.loads(file.read_text()) | {
        "model_type": f"own_{kind}",
        "auto_map": {"AutoConfig": "own.OwnConfig", AUTO_CLASSES[kind]: "own.OwnModel"},
    }
    file.write_text(json.dumps(config))
    family, parent = PARENTS[kind]
    code = CODE.format(family=family, parent=parent, kind=kind, marker=str(marker))
    (folder / "own.py").write_text(code)
    return marker


def add_own_tokenizer(folder: Path) -> Path:
    """Let a plain folder name a tokenizer class of its own; where the marker will be."""
    marker = folder.parent / f"{folder.name}.ran"
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text()) | {
        "tokenizer_class": "OwnTokenizer",
        "auto_map": {"AutoTokenizer": [None, "own.OwnTokenizer"]},
    }
    file.write_text(json.dumps(config))
    (folder / "own.py").write_text(
        "from pathlib import Path\n"
        "from transformers import PreTrainedTokenizerFast\n"
        f"Path({str(marker)!r}).write_text('it ran')\n"
        "class OwnTokenizer(PreTrainedTokenizerFast):\n    pass\n"
    )
    return marker


def _bert(kind: str):
    encoder = tiny_bert()
    if kind == "encoder":
        return encoder
    import transformers

    return transformers.BertForMaskedLM(encoder.config)
