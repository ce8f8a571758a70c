"""A tiny encoder and a tiny causal model of transformers, whose tokens are words of two topics."""

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

ANIMALS = ["frog", "toad", "lizard", "newt", "snake", "turtle"]
MUSIC = ["mozart", "schubert", "bach", "violin", "piano", "opera"]
PLAIN = ["the", "and", "with", "saw", "heard", "near", ".", "##s", "xy"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *PLAIN, *ANIMALS, *MUSIC]


def word_tokenizer():
    """Wordpieces; [CLS] and [SEP] stand around a text."""
    ids = {text: i for i, text in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def tiny_bert(seed=0):
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=64,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.BertModel(config)


def save_tiny_encoder(folder):
    """As a user has it: a folder that save_pretrained wrote."""
    tiny_bert().save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return folder


def two_topics(documents=40):
    """Documents about animals and about music, by turns, of two paragraphs each."""
    found = []
    for number in range(documents):
        words = ANIMALS if number % 2 else MUSIC
        turned = words[number % 6 :] + words[: number % 6]
        first = f"the {turned[0]} and the {turned[1]} heard the {turned[2]} near the {turned[3]} . "
        second = f"the {turned[4]} saw the {turned[5]} with the {turned[0]} and the {turned[2]} . "
        found.append([first * 2, second * 2])
    return found
