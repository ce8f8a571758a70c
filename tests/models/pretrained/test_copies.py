"""Copies of .gguf files: the same model, made once, and never half of one."""

import importlib.util
import json
import shutil
import threading
from collections import namedtuple

import pytest
import torch
from tests.support.full_disk import small_files

from triptych.core import files
from triptych.models.pretrained import causal_loading, copies
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.models.pretrained.encoder import PretrainedEncoder

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="needs transformers"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tests.support.tiny_model_folder import save_tiny_model

    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def gguf(tmp_path, folder, monkeypatch):
    """A .gguf file. Its reader gives the tiny model, marked as transformers marks a quantised one.

    The packages that read real ones are large and no part of the tests.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(causal_loading, "_check_packages", lambda gguf_file: None)
    read = []
    load, load_tokenizer = AutoModelForCausalLM.from_pretrained, AutoTokenizer.from_pretrained

    def read_model(name, gguf_file=None, **options):
        if gguf_file is None:
            return load(name, **options)
        read.append(options["dtype"])
        model, loaded = load(folder, **options)
        model.hf_quantizer = "of a .gguf file"  # save_pretrained refuses such a model
        model.config.quantization_config = {"quant_method": "gguf"}
        return model, loaded

    def read_tokenizer(name, gguf_file=None, **options):
        return load_tokenizer(name if gguf_file is None else folder, **options)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", read_model)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", read_tokenizer)
    file = tmp_path / "mine.gguf"
    file.write_bytes(b"GGUF of a tiny model")
    return namedtuple("Gguf", "file read")(file, read)


def place_of(gguf, dtype=torch.float32):
    return copies._place(gguf.file, dtype)


def test_it_is_read_once(gguf):
    first = PretrainedCausalLM.from_pretrained(gguf.file)
    again = PretrainedCausalLM.from_pretrained(gguf.file)
    assert gguf.read == [torch.float32]
    weights, copied = first.model.state_dict(), again.model.state_dict()
    assert weights.keys() == copied.keys()
    assert all(torch.equal(weights[name], copied[name]) for name in weights)
    assert torch.equal(first.next_token_log_probs([[4, 5]]), again.next_token_log_probs([[4, 5]]))
    assert again.encode(["ab("]) == first.encode(["ab("])
    assert again.chat("ab") == first.chat("ab")
    assert again.end_tokens == first.end_tokens
    assert not hasattr(again.model.config, "quantization_config")
    PretrainedEncoder.from_pretrained(gguf.file)
    assert len(gguf.read) == 1


def test_every_precision_has_its_own(gguf):
    for dtype in ("float32", "bfloat16", "float32", "bfloat16"):
        lm = PretrainedCausalLM.from_pretrained(gguf.file, dtype=dtype)
        assert lm.dtype == getattr(torch, dtype)
    assert gguf.read == [torch.float32, torch.bfloat16]


def test_another_file_of_this_name_is_read(gguf):
    PretrainedCausalLM.from_pretrained(gguf.file)
    gguf.file.write_bytes(b"GGUF of another model")
    PretrainedCausalLM.from_pretrained(gguf.file)
    assert len(gguf.read) == 2


def test_another_version_of_transformers_reads_again(gguf, monkeypatch):
    PretrainedCausalLM.from_pretrained(gguf.file)
    monkeypatch.setattr(copies, "version", lambda package: "6.0.0")
    (place_of(gguf) / "of_an_older_version.json").write_text("{}")
    for _ in range(2):
        PretrainedCausalLM.from_pretrained(gguf.file)
    assert len(gguf.read) == 2
    assert not (place_of(gguf) / "of_an_older_version.json").exists()


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


def turn_a_bit(path):
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut, turn_a_bit, lambda path: path.unlink()])
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "copy.json"])
def test_a_damaged_copy_is_made_again(gguf, name, damage):
    right = PretrainedCausalLM.from_pretrained(gguf.file).next_token_log_probs([[4, 5]])
    damage(place_of(gguf) / name)
    for _ in range(2):
        lm = PretrainedCausalLM.from_pretrained(gguf.file)
        assert torch.equal(lm.next_token_log_probs([[4, 5]]), right)
    assert len(gguf.read) == 2
    assert copies.is_whole(place_of(gguf))


@pytest.mark.parametrize("text", ["[]", "{}", '{"sha256": 1}', '{"sha256": {}}'])
def test_what_says_nothing_is_no_copy(gguf, text):
    PretrainedCausalLM.from_pretrained(gguf.file)
    about = place_of(gguf) / "copy.json"
    said = json.loads(text)
    if isinstance(said, dict):
        said["transformers"] = json.loads(about.read_text())["transformers"]
    about.write_text(json.dumps(said))
    assert not copies.is_whole(place_of(gguf))


@pytest.mark.parametrize("damaged", [False, True])
def test_a_kill_leaves_no_half_copy(gguf, monkeypatch, damaged):
    """At every file that takes its place; nothing is tidied up behind a kill."""
    if damaged:  # an older copy is there, of which nothing may be left among the new one
        PretrainedCausalLM.from_pretrained(gguf.file)
        turn_a_bit(place_of(gguf) / "model.safetensors")
    steps = 0
    for step in range(20):
        with monkeypatch.context() as killed:
            replacing, calls = files.replacing, []

            def dying(*given, step=step, calls=calls, replacing=replacing, **options):
                calls.append(given)
                if len(calls) > step:
                    raise SystemExit("killed")
                return replacing(*given, **options)

            killed.setattr(files, "replacing", dying)
            killed.setattr(shutil, "rmtree", lambda *_, **__: None)
            try:
                PretrainedCausalLM.from_pretrained(gguf.file)
            except SystemExit:
                steps += 1
                assert not copies.is_whole(place_of(gguf))
                shutil.rmtree(place_of(gguf) / "new", ignore_errors=True)
                continue
        break
    assert steps >= 5  # weights, config, two of the tokenizer, and copy.json
    assert copies.is_whole(place_of(gguf))


def test_what_a_kill_leaves_is_removed(gguf):
    left = place_of(gguf) / "new"
    left.mkdir(parents=True)
    (left / "rest.json").write_text("{")
    PretrainedCausalLM.from_pretrained(gguf.file)
    assert not left.exists()
    assert not (place_of(gguf) / "rest.json").exists()
    assert copies.is_whole(place_of(gguf))


def test_while_another_process_writes_it(gguf):
    with files.lock_folder(place_of(gguf)):
        PretrainedCausalLM.from_pretrained(gguf.file)
    assert not copies.is_whole(place_of(gguf))
    PretrainedCausalLM.from_pretrained(gguf.file)
    PretrainedCausalLM.from_pretrained(gguf.file)
    assert len(gguf.read) == 2


def test_many_at_once(gguf):
    """All get the model, and one copy is whole."""
    problems, results = [], []

    def load():
        try:
            lm = PretrainedCausalLM.from_pretrained(gguf.file)
            results.append(lm.next_token_log_probs([[4, 5]]))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=load) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(results) == 6
    assert all(torch.equal(result, results[0]) for result in results)
    assert copies.is_whole(place_of(gguf))


def test_a_full_disk_costs_the_copy_alone(gguf):
    """The model is here, and a warning says why there is no copy."""
    with small_files(2000), pytest.warns(UserWarning, match="no copy of"):
        lm = PretrainedCausalLM.from_pretrained(gguf.file)
    assert lm.next_token_log_probs([[4]]).isfinite().all()
    assert not copies.is_whole(place_of(gguf))
    PretrainedCausalLM.from_pretrained(gguf.file)
    assert copies.is_whole(place_of(gguf))


def test_a_copy_takes_a_tenth_of_the_free_space_at_most(gguf, monkeypatch):
    model = PretrainedCausalLM.from_pretrained(gguf.file).model
    shutil.rmtree(place_of(gguf))
    size = 4 * sum(weight.numel() for weight in model.parameters())
    usage = namedtuple("usage", "total used free")
    for free, kept in [(10 * size - 1, False), (10 * size + 1, True)]:
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage(0, 0, free))
        PretrainedCausalLM.from_pretrained(gguf.file)
        assert place_of(gguf).exists() == kept
