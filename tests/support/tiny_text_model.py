"""A tiny causal model of transformers with random weights, whose tokens are characters."""

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from triptych.models.pretrained.causal import PretrainedCausalLM

SPECIAL = ["<pad>", "<bos>", "<eos>", "<end>"]
LETTERS = 'ab01()[]{}:," <>'
BOS, EOS, END = 1, 2, 3


def tiny_tokenizer(letters=LETTERS):
    vocabulary = {text: i for i, text in enumerate([*SPECIAL, *letters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"
    )
    made.add_special_tokens({"additional_special_tokens": ["<end>"]})
    made.chat_template = "{% for m in messages %}{{ m['content'] }}:{% endfor %}"
    return made


def tiny_lm(seed=0, length=40, letters=LETTERS):
    """Llama with 2 layers; it ends texts with <eos> or <end>."""
    config = transformers.LlamaConfig(
        vocab_size=len(SPECIAL) + len(letters),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=length,
        bos_token_id=BOS,
        eos_token_id=[EOS, END],
        pad_token_id=0,
    )
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)  # transformers draws its weights from the global generator
        model = transformers.AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():
            parameter += 0.15 * torch.randn(parameter.shape)
    return PretrainedCausalLM(model, tiny_tokenizer(letters))


def tiny_classifier(
    seed=0,
    labels=1,
    *,
    family="llama",
    letters=LETTERS,
    auto=transformers.AutoModelForSequenceClassification,
):
    """A classifier of sequences, or of tokens, with random weights, on the same characters."""
    sizes = {
        "vocab_size": len(SPECIAL) + len(letters),
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 40,
        "pad_token_id": 0,
        "num_labels": labels,
    }
    kinds = {"llama": transformers.LlamaConfig, "bert": transformers.BertConfig}
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        model = auto.from_config(kinds[family](**sizes))
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape)
    return model
