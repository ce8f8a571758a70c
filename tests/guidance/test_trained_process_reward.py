"""A small process reward that was trained, end to end: labelled steps, a folder, calibration.

The model writes two lines, each one of eight test cases of `append`; which are right is the answer
of `append_tests.evaluate`. The process reward is a token classifier in TRL's form with three layers
of width 64, trained on other lines in about 40 seconds of a CPU. As the model's law is known, its
calibration is known exactly, and that from texts is compared with it.
"""

import random

import pytest
import torch
import transformers
from tests.support.tiny_text_model import tiny_tokenizer

from triptych.core.decoders import RecomputingDecoder
from triptych.core.table import Table
from triptych.guidance.calibrate import calibrate
from triptych.structures.append_tests.evaluate import evaluate
from triptych.theory.generation.value_errors import exact_calibration
from triptych.verifiers.process_reward import ProcessReward
from triptych.verifiers.step_forms import TokenClassifier

STEPS, BATCH, LINES = 800, 24, 2
LETTERS = "asertknovf()[],= 0123456789\n"
KINDS = ("right", "right", "right", "missing", "first", "twice", "other")


def line(rng):
    """A test case of `append`; three of seven are right by design, and some others by chance."""
    given, item = [rng.randint(0, 9) for _ in range(rng.randint(1, 2))], rng.randint(0, 9)
    result = {
        "right": [*given, item],
        "missing": given,
        "first": [item, *given],
        "twice": [*given, item, item],
        "other": [*given, rng.randint(0, 9)],
    }[rng.choice(KINDS)]
    return f"assert knk({given}, {item}) == {result}".replace(", ", ",").replace(" == ", "==")


def right(text):
    found = evaluate(text + "\n", "knk", cases=LINES, ended=True)
    return found.first_error is None


def labels(lines):
    """1 as long as all steps so far are right."""
    texts = ["\n".join(lines[: k + 1]) for k in range(len(lines))]
    return [int(evaluate(t + "\n", "knk", cases=LINES).first_error is None) for t in texts]


def tokenizer():
    made = tiny_tokenizer(LETTERS)
    made.chat_template = None
    return made


def trained(seed):
    """A token classifier, trained on steps with labels at the last token of each separator."""
    rng, tok = random.Random(seed), tokenizer()
    config = transformers.LlamaConfig(
        vocab_size=len(tok),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=160,
        pad_token_id=0,
        num_labels=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.LlamaForTokenClassification(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(STEPS):
        rows, targets = [], []
        for _ in range(BATCH):
            lines = [line(rng) for _ in range(LINES)]
            row, target = [tok.bos_token_id], [-100]
            for text, label in zip(lines, labels(lines), strict=True):
                ids = tok(text + "\n", add_special_tokens=False)["input_ids"]
                row += ids
                target += [-100] * (len(ids) - 1) + [label]
            rows.append(torch.tensor(row))
            targets.append(torch.tensor(target))
        fed = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        wanted = torch.nn.utils.rnn.pad_sequence(targets, batch_first=True, padding_value=-100)
        logits = model(input_ids=fed, attention_mask=(fed != 0).long()).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * min(1.0, (step + 1) / 50) * (1 - step / STEPS)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return model


class Writer:
    """A model of text whose tokens are whole lines."""

    end_tokens = ()

    def __init__(self, table, lines):
        self.table, self.lines, self.vocab_size = table, lines, len(lines)

    def next_token_log_probs(self, prefix):
        return self.table.next_token_log_probs(prefix)

    def encode(self, texts):
        return [[] for _ in texts]

    def text_of(self, tokens):
        return "".join(self.lines[token] + "\n" for token in tokens)

    def decoder(self, prompts, layer=None):
        return RecomputingDecoder(self, len(prompts))


class Read:
    """A function of text as a value of the writer's tokens."""

    def __init__(self, function, writer):
        self.function, self.writer = function, writer

    def log_value(self, prefix):
        texts = [self.writer.text_of(row) for row in prefix.tolist()]
        return torch.tensor(self.function(texts), dtype=torch.float64).log()


@pytest.mark.slow
def test_a_trained_process_reward_is_calibrated(tmp_path):
    trained(0).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    reward = ProcessReward.from_pretrained(tmp_path, TokenClassifier("\n"), separator="\n")
    rng = random.Random(1000)
    fresh = [line(rng) for _ in range(400)]
    judged = [values[0] > 0.5 for values in reward.steps([one + "\n" for one in fresh])]
    truth = [bool(labels([one])[0]) for one in fresh]
    accuracy = sum(a == b for a, b in zip(judged, truth, strict=True)) / len(fresh)
    base = max(sum(truth), len(truth) - sum(truth)) / len(truth)
    assert accuracy > base + 0.1

    writer = Writer(Table.random(8, LINES, seed=3), [line(rng) for _ in range(8)])
    outcome = Read(lambda texts: [float(right(text)) for text in texts], writer)
    exact = exact_calibration(writer.table, Read(reward, writer), outcome, n=(1, 4, 16))
    found = calibrate(
        reward, writer, [""], right, max_new_tokens=LINES, texts=300, depths=[1, 2], n=(1, 4, 16)
    ).prompts[0]
    print(f"accuracy {accuracy:.3f}, base {base:.3f}, {exact!r}")
    print(*exact.sentences(), "", *found.sentences(), sep="\n")
    for estimate, true in (
        (found.success, exact.success),
        (found.leaf_mass, exact.leaf_mass),
        (found.tilted, exact.tilted),
        *((found.best_of_n[n], exact.best_of_n[n]) for n in (1, 4, 16)),
        *((a.bias, b.bias) for a, b in zip(found.levels, exact.levels, strict=True)),
    ):
        assert estimate.low <= true.value <= estimate.high
    assert found.factor.low <= exact.factor.value
