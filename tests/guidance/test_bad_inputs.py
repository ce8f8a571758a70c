"""What people get wrong with models of Hugging Face: each is answered by one sentence."""

import numpy as np
import pytest
import torch
import transformers
from tests.support.tiny_text_model import tiny_lm, tiny_tokenizer
from tokenizers import Tokenizer, models

from triptych.core.validation import UserError
from triptych.guidance.guide import guide
from triptych.inference.guided.best_of_n import BestOfN
from triptych.inference.guided.result import VerifierError
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.verifiers.probe import Probe
from triptych.verifiers.text_rules.brackets import BracketPrefix

pytestmark = pytest.mark.usefixtures("unchecked_shapes")  # as they are for users
LM = tiny_lm()


def anything(text):
    return True


def refused(sentence, **arguments):
    given = {"lm": LM, "prompts": ["a"], "verifier": anything, "max_new_tokens": 3}
    given["algorithm"] = "backtracking"
    with pytest.raises(UserError, match=sentence) as caught:
        guide(**given | arguments)
    assert "\n" not in str(caught.value)
    return caught.value


def bert():
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 24}
    return transformers.BertForMaskedLM(
        transformers.BertConfig(vocab_size=20, num_attention_heads=2, **sizes)
    )


def test_without_a_padding_token_it_simply_works():
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = None
    model = PretrainedCausalLM(LM.model, tokenizer)
    expected = guide(LM, ["a", "b0"], anything, max_new_tokens=3)
    assert guide(model, ["a", "b0"], anything, max_new_tokens=3).texts == expected.texts


def test_a_tokenizer_of_another_model():
    words = models.WordLevel({f"w{i}": i for i in range(50)}, unk_token="w0")
    other = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words))
    with pytest.raises(UserError, match=r"token 49 and the model has tokens 0\.\.19: it is the"):
        PretrainedCausalLM(LM.model, other)


@pytest.mark.parametrize(
    "answer",
    ["yes", None, float("nan"), 2, -0.5, [True, True], np.ones(3), torch.ones(2), {}],
    ids=str,
)
def test_a_verifier_that_answers_something_else(answer):
    error = refused("it must answer True, False or a probability", verifier=lambda text: answer)
    assert isinstance(error.__cause__, VerifierError), "it keeps what there was so far"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("yes", "it gave a str"),
        (None, "it gave a NoneType"),
        (torch.tensor([float("nan")]), "says log V = nan"),
        (torch.zeros(3), r"of shape \(3,\)"),
        (torch.ones(1), "at most 0"),
    ],
    ids=str,
)
def test_a_verifier_of_tokens_that_answers_something_else(answer, sentence):
    class Odd:
        def log_value(self, prefix):
            return answer

    refused(sentence, verifier=Odd())


def test_a_batched_verifier_with_too_few_answers():
    class Short:
        batched = True

        def __call__(self, texts):
            return [True] * (len(texts) - 1)

    refused("answered 0 values to 1 texts", verifier=Short())


@pytest.mark.parametrize(
    ("verifier", "sentence"),
    [
        (lambda: True, r"has the parameters \(\); it must take one text"),
        (lambda text, more: True, r"has the parameters \(text, more\)"),
        (lambda text: 1 / 0, "failed with ZeroDivisionError: division by zero on the text"),
        (BracketPrefix, r"verifier is the class BracketPrefix; pass an object of it"),
        ("rule", "verifier is 'rule'"),
        (None, "backtracking needs a verifier"),
    ],
    ids=["none", "two", "raises", "class", "word", "nothing"],
)
def test_a_verifier_that_cannot_be_asked(verifier, sentence):
    refused(sentence, verifier=verifier)


def test_probes_of_another_place():
    zero = torch.zeros(2)
    bare = Probe(torch.zeros(16), torch.ones(16), (torch.zeros(2, 16),), (zero,))
    refused("does not know its layer", verifier=bare)
    small = Probe(torch.zeros(3), torch.ones(3), (torch.zeros(2, 3),), (zero,), 1)
    refused(r"this probe reads \[batch, 3\]", verifier=small)
    far = Probe(torch.zeros(16), torch.ones(16), (torch.zeros(2, 16),), (zero,), 9)
    refused("layer is 9; this model has 0 to 2", verifier=far)


def test_encoders_are_no_causal_models(tmp_path):
    with pytest.raises(UserError, match="BertForMaskedLM looks at later tokens, as an encoder"):
        PretrainedCausalLM(bert(), tiny_tokenizer())
    bert().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match="looks at later tokens, as an encoder does"):
        PretrainedCausalLM.from_pretrained(tmp_path)


def test_a_folder_without_a_tokenizer(tmp_path):
    LM.model.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="has a model, and no tokenizer that transformers can load"):
        PretrainedCausalLM.from_pretrained(tmp_path)


def test_what_stands_in_place_of_the_model():
    refused("pass it with its tokenizer, PretrainedCausalLM", lm=LM.model)
    refused("load it first, PretrainedCausalLM.from_pretrained", lm="gpt2")
    refused("this model has no tokenizer", lm=PretrainedCausalLM(LM.model))


def test_prompts():
    assert len(guide(LM, [""], anything, max_new_tokens=3).texts) == 1
    without_bos = PretrainedCausalLM(LM.model, tiny_tokenizer(), bos=False)
    refused(r"prompts\[1\] is empty, and this model has no BOS", lm=without_bos, prompts=["a", ""])
    refused("prompts is empty", prompts=[])
    refused("prompts is None", prompts=None)
    refused(r"prompts\[0\] is \[1, 2\]; it must be a string", prompts=[[1, 2]])
    refused(
        "has 50 tokens and max_new_tokens is 3; this model reads at most 39", prompts=["a" * 50]
    )


def test_conversations():
    plain = tiny_tokenizer()
    plain.chat_template = None
    refused("has no chat template", lm=PretrainedCausalLM(LM.model, plain), chat=True)
    refused("a message is a dictionary with 'role'", prompts=[[{"role": "user"}]], chat=True)
    refused("messages is empty", prompts=[[]], chat=True)


def test_numbers():
    refused("max_new_tokens is 0; it must be at least 1", max_new_tokens=0)
    refused("max_new_tokens is '3'; it must be a whole number", max_new_tokens="3")
    refused("sampling is 0.7; it must be a Sampling", sampling=0.7)
    refused("algorithm is the class BestOfN; pass an object of it", algorithm=BestOfN)
    refused("batch is 0", batch=0)
    refused("budget is 3", budget=3)
    refused("record is 'yes'", record="yes")
