"""A small real model in a .gguf file: some layers and some tokens of SmolLM2, in float32.

A server answers it in a millisecond, so that thousands of draws can be compared with the law that
transformers computes from the same numbers. The first tokens of a byte-pair vocabulary and the
merges that make them are a vocabulary of their own.

    python tests/servers/small_model.py SOURCE.gguf TARGET.gguf

writes the file, where gguf is installed; `small_folder` writes a folder for transformers and vLLM.
"""

import json
import sys
from pathlib import Path

LAYERS, TOKENS = 2, 1024
_SPECIAL_AND_BYTES = 17 + 256  # before the first merge
_PER_TOKEN = ("token_embd.weight", "output.weight")


def make_small(source: Path, target: Path, layers: int = LAYERS, tokens: int = TOKENS) -> Path:
    import numpy as np
    from gguf import GGUFReader, GGUFValueType, GGUFWriter
    from gguf.quants import dequantize

    reader = GGUFReader(source)
    writer = GGUFWriter(target, "llama")
    for field in reader.fields.values():
        name = field.name
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = field.contents()
        if name in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores"):
            value = value[:tokens]
        elif name == "tokenizer.ggml.merges":
            value = value[: tokens - _SPECIAL_AND_BYTES]
        elif name == "llama.block_count":
            value = layers
        elif name == "llama.vocab_size":
            value = tokens
        elif name == "general.file_type":
            value = 0  # all float32
        kind = field.types[0]
        sub = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, kind, sub_type=sub)
    for tensor in reader.tensors:
        parts = tensor.name.split(".")
        if parts[0] == "blk" and int(parts[1]) >= layers:
            continue
        data = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        data = data.reshape(tuple(int(n) for n in reversed(tensor.shape)))
        writer.add_tensor(tensor.name, data[:tokens] if tensor.name in _PER_TOKEN else data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def small_folder(source: Path, target: Path, layers: int = LAYERS, tokens: int = TOKENS) -> Path:
    """The same of a folder that save_pretrained wrote."""
    from safetensors.torch import load_file, save_file

    target.mkdir(parents=True, exist_ok=True)
    weights = {}
    for name, weight in load_file(source / "model.safetensors").items():
        parts = name.split(".")
        if "layers" in parts and int(parts[parts.index("layers") + 1]) >= layers:
            continue
        whole = "embed_tokens" in name or "lm_head" in name
        weights[name] = (weight[:tokens] if whole else weight).contiguous().clone()
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config |= {"num_hidden_layers": layers, "vocab_size": tokens}
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"][:layers]
    (target / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    model = tokenizer["model"]
    model["vocab"] = {text: k for text, k in model["vocab"].items() if k < tokens}
    model["merges"] = model["merges"][: tokens - _SPECIAL_AND_BYTES]
    (target / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in ("tokenizer_config.json", "generation_config.json"):
        (target / name).write_text((source / name).read_text())
    return target


if __name__ == "__main__":
    make_small(Path(sys.argv[1]), Path(sys.argv[2]))
