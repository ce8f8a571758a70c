"""Process reward models of every form, against plain calls of transformers, a text at a time.

The models are tiny and random, saved into a folder and loaded by `from_pretrained`.
"""

import json
import math
import subprocess
import sys

import pytest
import torch
import transformers
from tests.support.tiny_text_model import SPECIAL, tiny_lm, tiny_tokenizer

from triptych.core.validation import UserError
from triptych.guidance.guide import guide
from triptych.inference.guided.algorithm import algorithms
from triptych.verifiers.process_reward import COMBINES, ProcessReward, combined, finished_steps
from triptych.verifiers.step_forms import (
    JudgedTurns,
    SequenceClassifier,
    StepTokens,
    TaggedSteps,
    TokenClassifier,
)

LETTERS = "abcd01 ;:|+-\nки"
CHAT = (
    "{% for m in messages %}{{ m['role'][0] }}:{{ m['content'] }}|{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)
PROMPTS = ["a1", "", "ab0b1"]
TEXTS = ["ab;b1;c", "1;", "a;;b;0 1;ccc;"]  # with ";" two, one and four finished steps
STEPS = [["ab", "b1"], ["1"], ["a", "b", "0 1", "ccc"]]


def tokenizer(*, chat=True):
    made = tiny_tokenizer(LETTERS)
    made.add_special_tokens({"additional_special_tokens": ["<end>", "<extra_0>"]})
    made.chat_template = CHAT if chat else None
    return made


def network(auto, family="llama", labels=2, seed=0, length=80):
    sizes = {
        "vocab_size": len(SPECIAL) + len(LETTERS) + 2,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": length,
        "pad_token_id": 0,
        "num_labels": labels,
    }
    kinds = {"llama": transformers.LlamaConfig, "bert": transformers.BertConfig}
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        model = getattr(transformers, auto).from_config(kinds[family](**sizes))
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape)
    return model.eval()


TOKENS, CAUSAL, TEXT = (
    "AutoModelForTokenClassification",
    "AutoModelForCausalLM",
    "AutoModelForSequenceClassification",
)
CASES = {
    "tokens, causal": (TokenClassifier(";"), TOKENS, "llama", True),
    "tokens, both directions": (TokenClassifier(";"), TOKENS, "bert", True),
    "tokens, long separator": (TokenClassifier("\n\n"), TOKENS, "bert", True),
    "tokens, chat": (TokenClassifier(";", chat=True), TOKENS, "llama", True),
    "step tokens": (StepTokens(), TOKENS, "llama", True),
    "step tokens, both directions": (StepTokens(system="b"), TOKENS, "bert", True),
    "step tokens, no chat": (StepTokens(), TOKENS, "llama", False),
    "tags": (TaggedSteps(), CAUSAL, "llama", False),
    "tags, chat": (TaggedSteps(tag="к", joiner=""), CAUSAL, "llama", True),
    "turns": (JudgedTurns(), CAUSAL, "llama", True),
    "texts": (SequenceClassifier(";"), TEXT, "llama", True),
    "pairs of texts": (SequenceClassifier(";"), TEXT, "bert", False),
}


def obvious(form, model, tok, prompt, steps):
    """The judgements of some steps, spelled out with plain calls."""

    def ids(text):
        return tok(text, add_special_tokens=False)["input_ids"]

    def logits(tokens):
        with torch.no_grad():
            return model(input_ids=torch.tensor([tokens])).logits[0].double()

    def render(turns, answer=False):
        return tok.apply_chat_template(turns, tokenize=False, add_generation_prompt=answer)

    user = {"role": "user", "content": prompt}
    if isinstance(form, TokenClassifier):
        row, marks = [tok.bos_token_id, *ids(prompt)], []
        if form.chat:
            row = ids(render([user], answer=True))
        for step in steps:
            row += ids(step) + ids(form.separator)
            marks.append(len(row) - 1)
        return logits(row)[marks].softmax(-1)[:, 1].tolist()
    if isinstance(form, StepTokens):
        said = "".join(step + "<extra_0>" for step in steps)
        turns = [user, {"role": "assistant", "content": said}]
        if form.system:
            turns = [{"role": "system", "content": form.system}, *turns]
        row = ids(render(turns) if tok.chat_template else prompt + said)
        marks = [t for t, token in enumerate(row) if token == ids("<extra_0>")[0]]
        return logits(row)[marks].softmax(-1)[:, 1].tolist()
    plus, minus = ids("+")[0], ids("-")[0]
    if isinstance(form, TaggedSteps):
        said = form.joiner.join(step + form.tag for step in steps)
        if form.chat:
            row = ids(render([user, {"role": "assistant", "content": said}]))
        else:
            row = ids(f"{prompt} {said}" if prompt else said)
        marks = [t for t, token in enumerate(row) if token == ids(form.tag)[-1]]
        return logits(row)[marks][:, [plus, minus]].softmax(-1)[:, 0].tolist()
    values, turns = [], []
    if isinstance(form, JudgedTurns):
        for k, step in enumerate(steps):  # as their script: one pass for each step, at "-3"
            turns.append({"role": "user", "content": f"{prompt} {step}" if k == 0 else step})
            if k == 0 and not prompt:
                turns[0]["content"] = step
            turns.append({"role": "assistant", "content": "+"})
            row = ids(render(turns))
            assert row[-2:] == [plus, ids("|")[0]]
            values.append(float(logits(row)[-3, [plus, minus]].softmax(-1)[0]))
        return values
    for k in range(1, len(steps) + 1):
        text = ";".join(steps[:k])
        if tok.chat_template:
            fed = tok(render([user, {"role": "assistant", "content": text}]), return_tensors="pt")
        else:
            fed = tok(*([prompt, text] if prompt else [text]), return_tensors="pt")
        with torch.no_grad():
            values.append(float(model(**fed).logits[0].double().softmax(-1)[1]))
    return values


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    """A form, its network and tokenizer as they came from a folder, and the folder."""
    form, auto, family, chat = CASES[request.param]
    network(auto, family).save_pretrained(tmp_path)
    tokenizer(chat=chat).save_pretrained(tmp_path)
    model = getattr(transformers, auto).from_pretrained(tmp_path)
    return form, model.eval(), transformers.AutoTokenizer.from_pretrained(tmp_path), tmp_path


def test_every_form_is_the_obvious_one(case):
    form, model, tok, folder = case
    expected = [obvious(form, model, tok, *row) for row in zip(PROMPTS, STEPS, strict=True)]
    assert len({round(v, 6) for row in expected for v in row}) > 5  # no network that says one thing
    for batch in (1, 2, 32):
        reward = ProcessReward.from_pretrained(
            folder, form, separator=";", batch=batch, local_files_only=True
        )
        found = reward.steps(TEXTS, PROMPTS)
        for got, want in zip(found, expected, strict=True):
            assert got == pytest.approx(want, rel=2e-5)
        rows = 7 if form.last_only else 3
        assert reward.passes == math.ceil(rows / batch)
        assert reward.steps(TEXTS, PROMPTS) == found
        assert reward.passes == math.ceil(rows / batch)  # nothing is asked twice
    for combine in COMBINES:
        reward = ProcessReward.from_pretrained(folder, form, separator=";", combine=combine)
        want = [combined(values, combine) for values in expected]
        assert reward(TEXTS, PROMPTS) == pytest.approx(want, rel=2e-5)


def test_worked_values_of_combinations():
    steps = [0.5, 1.0, 0.25]
    found = [combined(steps, combine) for combine in COMBINES]
    assert found == pytest.approx([1 / 4, 1 / 8, 7 / 12, 1 / 4, 1 / 2])
    assert COMBINES == ("last", "product", "mean", "min", "geometric_mean")
    assert combined([], "mean") == 1
    assert combined([], "min", 0.3) == 0.3
    assert combined([0.0, 1.0], "geometric_mean") == 0
    product, total = combined(steps, "product"), sum(map(math.log, steps))
    assert math.log(product) == pytest.approx(total)  # the sum of log v


def test_worked_value_of_a_model():
    """Logits 0 and log 3 for - and + are V = 3/4, wherever they stand."""
    model = network(TOKENS)
    with torch.no_grad():
        model.score.weight.zero_()
        model.score.bias.copy_(torch.tensor([0.0, math.log(3)]))
    reward = ProcessReward(model, tokenizer(), TokenClassifier(";"), separator=";")
    assert reward(["a;b;"]) == pytest.approx([0.75])
    other = ProcessReward(model, tokenizer(), TokenClassifier(";", label="LABEL_0"), separator=";")
    assert other(["a;b;"]) == pytest.approx([0.25])
    one = network(TOKENS, labels=1)
    with torch.no_grad():
        one.score.weight.zero_()
        one.score.bias.fill_(math.log(3))
    sigmoid = ProcessReward(one, tokenizer(), TokenClassifier(";"), separator=";")
    assert sigmoid(["a;"]) == pytest.approx([0.75])


def test_what_is_a_finished_step():
    assert finished_steps("a;b;c", ";", over=False) == ["a", "b"]
    assert finished_steps("a;b;c", ";", over=True) == ["a", "b", "c"]
    assert finished_steps("a\n\n\n\n b \n\n", "\n\n", over=True) == ["a", " b "]
    assert finished_steps("", ";", over=True) == []


def test_an_unfinished_step_changes_nothing():
    reward = ProcessReward(
        network(TOKENS), tokenizer(), TokenClassifier(";"), separator=";", before=0.4
    )
    assert reward(["a", "ab", ""]) == [0.4, 0.4, 0.4]
    assert reward.passes == 0
    known = reward(["a;", "a;b", "a;bb"])
    assert known[0] == known[1] == known[2]
    assert reward.passes == 1
    over = reward(["a;b"] * 2, finished=[True, False])
    assert over[1] == known[0] != over[0]
    assert over[0] == reward(["a;b;"])[0]


def test_last_asks_a_classifier_about_the_last_step_alone():
    model = network(TEXT)
    last = ProcessReward(model, tokenizer(), SequenceClassifier(";"), separator=";", batch=1)
    last(["a;b;c;"])
    assert last.passes == 1
    least = ProcessReward(
        model, tokenizer(), SequenceClassifier(";"), separator=";", batch=1, combine="min"
    )
    least(["a;b;c;"])
    assert least.passes == 3


def test_a_row_that_is_too_long_loses_its_beginning():
    model = network(TOKENS)
    reward = ProcessReward(
        model, tokenizer(), TokenClassifier(";"), separator=";", combine="min", length=5
    )
    with pytest.warns(UserWarning, match="reads 5: its beginning is cut"):
        found = reward.steps(["a;b;cc;", "a;"])
    assert reward.truncated == 1
    ids = tokenizer()("b;cc;", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        want = model(input_ids=torch.tensor([ids])).logits[0].double().softmax(-1)[[1, 4], 1]
    assert found[0] == pytest.approx(want.tolist(), rel=1e-5)
    assert len(found[1]) == 1


def test_a_conversation_is_a_prompt():
    form = StepTokens()
    reward = ProcessReward(network(TOKENS), tokenizer(), form, separator=";")
    turns = [{"role": "user", "content": "a1"}]
    assert reward(["b;"], turns) == reward(["b;"], "a1")
    longer = [*turns, {"role": "assistant", "content": "b"}, {"role": "user", "content": "a1"}]
    assert reward(["b;"], [longer]) != reward(["b;"], "a1")


def test_a_step_that_writes_the_mark_is_one_step():
    """A completion may hold the step token; its judgements stay where the steps end."""
    model, tok = network(TOKENS), tokenizer()
    reward = ProcessReward(model, tok, StepTokens(), separator=";")
    (found,) = reward.steps(["a<extra_0>b;c;"], "a1")
    row = tok("u:a1|a:a<extra_0>b<extra_0>c<extra_0>|", add_special_tokens=False)["input_ids"]
    marks = [t for t, token in enumerate(row) if token == tok("<extra_0>")["input_ids"][-1]]
    with torch.no_grad():
        law = model(input_ids=torch.tensor([row])).logits[0].double().softmax(-1)[:, 1]
    assert found == pytest.approx(law[marks[1:]].tolist(), rel=1e-5)


@pytest.mark.parametrize("algorithm", sorted(algorithms()))
def test_it_guides(algorithm):
    if algorithm == "ancestral":
        return
    lm = tiny_lm(letters=LETTERS)
    reward = ProcessReward(network(TOKENS), tokenizer(), TokenClassifier(";"), separator=";")
    found = guide(lm, ["a", "b0"], reward, algorithm, max_new_tokens=5, rng=0)
    want = reward(found.texts, found.prompts, finished=True)
    assert found.scores == pytest.approx(want, rel=1e-5)


OWN = """
import torch
from torch import nn
from transformers import Qwen2Config, Qwen2Model, PreTrainedModel
from transformers.modeling_outputs import TokenClassifierOutput
from pathlib import Path
Path({marker!r}).write_text("it ran")

class OwnPRM(PreTrainedModel):
    config_class = Qwen2Config
    def __init__(self, config):
        super().__init__(config)
        self.num_labels = 2
        self.model = Qwen2Model(config)
        self.score = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
        self.post_init()
    def forward(self, input_ids=None, attention_mask=None, **kwargs):
        states = self.model(input_ids=input_ids, attention_mask=attention_mask)[0]
        return TokenClassifierOutput(logits=self.score(states))
"""
LOAD = """
import sys, json, torch, transformers
from triptych.core.validation import UserError
from triptych.verifiers.process_reward import ProcessReward
from triptych.verifiers.step_forms import StepTokens
said = []
for trust in (False, True):
    try:
        reward = ProcessReward.from_pretrained(
            sys.argv[1], StepTokens(), separator=";", trust_remote_code=trust, local_files_only=True
        )
        tok = reward.tokenizer
        text = tok.apply_chat_template(
            [{"role": "user", "content": "a1"},
             {"role": "assistant", "content": "ab<extra_0>b<extra_0>"}], tokenize=False)
        row = tok(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        logits = reward.model(input_ids=row).logits[0].double()
        want = logits[row[0] == tok.convert_tokens_to_ids("<extra_0>")].softmax(-1)[:, 1]
        said.append([type(reward.model).__name__, reward.steps(["ab;b;"], "a1")[0], want.tolist()])
    except UserError as error:
        said.append(str(error))
print(json.dumps(said))
"""


def test_python_of_a_model_runs_where_it_was_asked_for(tmp_path):
    """A folder as that of Qwen2.5-Math-PRM: AutoModel with a head of its own."""
    folder, marker = tmp_path / "model", tmp_path / "ran"
    config = transformers.Qwen2Config(
        vocab_size=len(SPECIAL) + len(LETTERS) + 2,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=80,
        pad_token_id=0,
    )
    code: dict = {}
    exec(OWN.format(marker=str(tmp_path / "made")), code)
    torch.manual_seed(0)
    code["OwnPRM"](config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    (folder / "own.py").write_text(OWN.format(marker=str(marker)))
    file = folder / "config.json"
    mapped = json.loads(file.read_text()) | {"auto_map": {"AutoModel": "own.OwnPRM"}}
    file.write_text(json.dumps(mapped))
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        input="y\n" * 9,
        env={
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": ":".join(sys.path),
        },
    )
    assert done.returncode == 0, done.stderr
    refused, (name, found, want) = json.loads(done.stdout.splitlines()[-1])
    assert "score" in refused
    assert "trust_remote_code" in refused
    assert name == "OwnPRM"
    assert found == pytest.approx(want, rel=1e-5)
    assert marker.exists()


def test_bad_input_gets_a_sentence(tmp_path, unchecked_shapes):
    tok, model, form = tokenizer(), network(TOKENS), TokenClassifier(";")
    network(CAUSAL).save_pretrained(tmp_path / "causal")
    tok.save_pretrained(tmp_path / "causal")
    causal = network(CAUSAL)
    changing = tokenizer()
    changing.chat_template = "{% for m in messages[-1:] %}{{ m['content']|upper }}{% endfor %}"
    slow = transformers.CanineTokenizer()
    reward = ProcessReward(model, tok, form)
    for given, sentence in [
        (lambda: ProcessReward(3, tok, form), "model is 3; pass a token classifier"),
        (lambda: ProcessReward(model, None, form), "tokenizer is None"),
        (lambda: ProcessReward(model, tok, "tokens"), "form is 'tokens'; pass TokenClassifier"),
        (lambda: ProcessReward(model, tok, TokenClassifier), "form is .*TokenClassifier"),
        (lambda: ProcessReward(model, tok, form, separator=""), "separator is ''"),
        (lambda: ProcessReward(model, tok, form, separator=3), "separator is 3"),
        (lambda: ProcessReward(model, tok, form, combine="sum"), "combine is 'sum'; .*product"),
        (lambda: ProcessReward(model, tok, form, before=1.5), "before is 1.5"),
        (lambda: ProcessReward(model, tok, form, batch=0), "batch is 0"),
        (lambda: ProcessReward(model, tok, form, length=81), "length is 81"),
        (lambda: TokenClassifier(""), "separator is ''"),
        (lambda: TokenClassifier(chat="yes"), "chat is 'yes'"),
        (lambda: StepTokens(token=3), "token is 3"),
        (lambda: TaggedSteps(tag=""), "tag is ''"),
        (lambda: JudgedTurns(good=""), "good is ''"),
        (lambda: ProcessReward(model, tok, StepTokens("<a>")), "token is '<a>'.*one token"),
        (lambda: ProcessReward(causal, tok, TaggedSteps(good="ab")), "good is 'ab'"),
        (lambda: ProcessReward(causal, tok, JudgedTurns("+", "+")), "the same token"),
        (
            lambda: ProcessReward(causal, tokenizer(chat=False), JudgedTurns()),
            "no chat template, and JudgedTurns needs one",
        ),
        (
            lambda: ProcessReward(network(TOKENS, labels=3), tok, form),
            "3 labels, .*say with label=",
        ),
        (lambda: ProcessReward(causal, changing, JudgedTurns())(["a\n\nb\n\n"]), "only add to"),
        (lambda: ProcessReward(model, changing, StepTokens())(["a\n\n"]), "changes what the"),
        (lambda: ProcessReward(causal, slow, TaggedSteps("b"))(["a\n\n"]), "a fast tokenizer"),
        (lambda: ProcessReward(network(TEXT), tok, form)(["a\n\n"]), "pass a token classifier"),
        (
            lambda: ProcessReward(model, tok, StepTokens(), length=1)(["a\n\n"]),
            "where no judgement stands",
        ),
        (lambda: ProcessReward.from_pretrained("", form), "where is ''"),
        (lambda: ProcessReward.from_pretrained(tmp_path, form), "could not be loaded"),
        (
            lambda: ProcessReward.from_pretrained(tmp_path / "causal", form),
            "has no weights for score",
        ),
        (lambda: ProcessReward.from_pretrained("x", form, dtype="int8"), "dtype is 'int8'"),
        (lambda: reward("ab"), "texts is the string 'ab'"),
        (lambda: reward([3]), r"texts\[0\] is 3"),
        (lambda: reward(["a"], ["b", "c"]), "2 prompts for 1 texts"),
        (lambda: reward(["a"], finished=[True, False]), "finished has 2 answers for 1 texts"),
        (lambda: reward(["a"], finished="no"), "finished"),
    ]:
        with pytest.raises(UserError, match=sentence):
            given()


def test_weights_that_are_no_numbers():
    model = network(TOKENS)
    with torch.no_grad():
        model.score.weight.fill_(math.nan)
    with pytest.raises(UserError, match="answered nan or inf"):
        ProcessReward(model, tokenizer(), TokenClassifier(";"), separator=";")(["a;"])
