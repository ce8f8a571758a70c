"""Networks of others as denoisers: masked logits, and DiffusionGemma next to its own generate."""

from types import SimpleNamespace

import pytest
import torch

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.diffusion.denoiser import Denoiser, ReadsItself
from triptych.diffusion.denoising import Denoising
from triptych.diffusion.networks.diffusion_gemma import DiffusionGemmaDenoiser
from triptych.diffusion.networks.masked_logits import MaskedLogits, load_denoiser
from triptych.diffusion.sampler import blank
from triptych.diffusion.samplers.gumbel_confidence import GumbelConfidence
from triptych.diffusion.samplers.random_order import RandomOrder
from triptych.diffusion.samplers.uniform_entropy_bounded import UniformEntropyBounded

transformers = pytest.importorskip("transformers")
from tests.support.tiny_encoder import word_tokenizer  # noqa: E402

VOCAB, MASK = 6, 5


def embedding_logits(seed=0):
    """A network that mixes its neighbours: logits of each position from three embeddings."""
    table = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed))

    def network(input_ids):
        seen = table[input_ids]
        return SimpleNamespace(logits=seen + 0.5 * seen.roll(1, 1) - 0.3 * seen.roll(-1, 1))

    return network


def test_the_law_is_that_of_the_logits_without_the_mask():
    worked = MaskedLogits(
        lambda input_ids: torch.tensor([1.0, 2.0, 1.0]).log().expand(*input_ids.shape, 3),
        mask_id=2,
        vocab_size=3,
    )
    run = Denoising(worked, *blank(1, 1), TorchRng(0))
    run.begin(torch.tensor([[True]]))
    assert torch.allclose(run.ask(run.hidden).exp(), torch.tensor([[1 / 3, 2 / 3, 0.0]]))

    network = embedding_logits()
    denoiser = MaskedLogits(network, mask_id=MASK, vocab_size=VOCAB, never=(4,), rows_at_once=2)
    assert isinstance(denoiser, Denoiser)
    tokens = torch.randint(4, (5, 7), generator=torch.Generator().manual_seed(1))
    hidden = torch.rand(5, 7, generator=torch.Generator().manual_seed(2)) < 0.5
    run = Denoising(denoiser, tokens, hidden, TorchRng(0))
    run.begin(hidden)
    logits = network(tokens.masked_fill(hidden, MASK)).logits[hidden]
    logits[:, [4, 5]] = -torch.inf
    assert torch.equal(run.ask(hidden), logits.log_softmax(-1))
    assert run.costs.forward_passes == 1


def test_a_shifted_network_answers_one_position_early():
    """Dream: the logits of position i - 1 are about position i, those of 0 about 0 and 1."""
    network = embedding_logits()
    denoiser = MaskedLogits(network, mask_id=MASK, vocab_size=VOCAB, shift=True)
    tokens, hidden = blank(2, 5)
    run = Denoising(denoiser, tokens, hidden, TorchRng(0))
    run.begin(hidden)
    logits = network(torch.full((2, 5), MASK)).logits
    moved = torch.cat([logits[:, :1], logits[:, :-1]], 1)
    moved[..., MASK] = -torch.inf
    assert torch.equal(run.ask(hidden), moved.log_softmax(-1).reshape(10, VOCAB))


def test_what_is_wrong_with_a_network_is_a_sentence():
    with pytest.raises(UserError, match="mask_id"):
        MaskedLogits(embedding_logits(), mask_id=9, vocab_size=VOCAB)
    wide = MaskedLogits(embedding_logits(), mask_id=5, vocab_size=VOCAB + 1)
    with pytest.raises(UserError, match="logits of shape"):
        RandomOrder().sample(wide, *blank(1, 3), rng=0)
    with pytest.raises(UserError, match="uniform noise"):
        UniformEntropyBounded().sample(
            MaskedLogits(embedding_logits(), MASK, VOCAB), *blank(1, 3), rng=0
        )


def test_a_masked_lm_of_a_folder(tmp_path):
    """Saved and loaded: a BERT of transformers fills, and nothing of a folder's code is run."""
    words = word_tokenizer()
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=16,
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    denoiser = load_denoiser(tmp_path, local_files_only=True)
    done = GumbelConfidence(steps=2).sample(denoiser, *blank(2, 4), rng=0)
    assert done.complete.all()


# ------------------------------------------------------------------ DiffusionGemma


def tiny_gemma(canvas=4, vocab=12):
    """A random DiffusionGemma of 176,436 weights, as unsure as it comes."""
    from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

    torch.manual_seed(0)
    text = {
        "vocab_size": vocab,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "global_head_dim": 8,
        "num_global_key_value_heads": 1,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 8,
        "num_experts": 2,
        "top_k_experts": 1,
        "moe_intermediate_size": 8,
        "eos_token_id": None,
        "initializer_range": 0.5,
    }
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8}
    ids = {"image_token_id": vocab + 1, "boi_token_id": vocab + 2, "eoi_token_id": vocab + 3}
    config = DiffusionGemmaConfig(
        text_config=text, vision_config=vision, canvas_length=canvas, **ids
    )
    model = DiffusionGemmaForBlockDiffusion(config).eval()
    with torch.no_grad():  # its own start weights make all laws nearly uniform
        for weight in model.parameters():
            weight.normal_(0, 0.6)
    return model


@pytest.fixture(scope="module")
def gemma():
    pytest.importorskip("transformers.models.diffusion_gemma")
    return tiny_gemma()


def canvases(prompts, blocks, length):
    tokens = torch.cat([prompts, torch.zeros(len(prompts), blocks * length).long()], 1)
    hidden = torch.zeros_like(tokens, dtype=torch.bool)
    hidden[:, prompts.shape[1] :] = True
    return tokens, hidden


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("steps", "stability", "confidence"), [(4, 1, 1e-6), (4, 1, 2.5), (6, 0, 1.6)]
)
def test_the_same_draws_make_the_same_text_as_generate(
    gemma, monkeypatch, steps, stability, confidence
):
    """Our draws are put into torch.multinomial and torch.randint of the unmodified `generate`.

    With a confidence of 1.6 nats rows stop at different steps; then their canvas stays.
    """
    denoiser = DiffusionGemmaDenoiser(gemma)
    assert isinstance(denoiser, ReadsItself)
    prompts = torch.tensor([[3, 4, 5], [6, 7, 8], [9, 10, 2]])
    sampler = UniformEntropyBounded(
        steps=steps, bound=1.5, confidence=confidence, stability=stability
    )
    tokens, hidden = canvases(prompts, blocks=2, length=4)
    done = sampler.sample(denoiser, tokens, hidden, rng=0, block_length=4, record=True)
    assert done.complete.all()
    script, now = iter(done.trace), {}

    def written_in(step, grid):
        begin = 3 + 4 * step.block
        return grid[:, begin : begin + 4]

    def randint(*, low, high, size, device=None):
        """The noise of a step, after its draws; or a fresh canvas, after nothing."""
        assert (low, high, tuple(size)) == (0, 12, (3, 4))
        fresh = "step" not in now
        step = next(script) if fresh else now.pop("step")
        assert (step.number == -1) == fresh
        return written_in(step, step.tokens).clone()

    def multinomial(probs, num_samples):
        """What we accepted; elsewhere the best token, which is thrown away."""
        assert num_samples == 1
        step = now["step"] = next(script)
        best = probs.argmax(-1).reshape(3, 4)
        taken = torch.where(written_in(step, step.written), written_in(step, step.tokens), best)
        return taken.reshape(-1, 1)

    monkeypatch.setattr(torch, "randint", randint)
    monkeypatch.setattr(torch, "multinomial", multinomial)
    from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
        EntropyBoundSamplerConfig,
    )

    out = gemma.generate(
        prompts,
        max_new_tokens=8,
        max_denoising_steps=steps,
        sampler_config=EntropyBoundSamplerConfig(entropy_bound=1.5),
        t_min=0.4,
        t_max=0.8,
        stability_threshold=stability,
        confidence_threshold=confidence,
    )
    assert torch.equal(out.sequences, done.tokens)
    assert next(script, None) is None  # it took as many steps, and all draws were used
    if confidence == 1.6:
        assert len(set(done.costs.generator_calls.tolist())) > 1
