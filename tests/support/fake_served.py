"""A small server that follows vLLM's or llama.cpp's documented protocol, on laws that are known.

    with FakeServer(law, vocab_size=20, tokenizer=...) as server:
        lm = ServedLM(server.url, tokenizer=...)

`law(prefix)` gives the probabilities of the next token. What it draws depends on the seed of the
request and the prefix alone, as with the real ones. `faults` are taken one by one, a request each.
"""

import json
import math
import random
import socket
import struct
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LLAMA, VLLM, OPENAI = "llama.cpp", "vllm", "openai"


class _Http(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 256  # all of a client's connections at once

    def handle_error(self, request, client_address):
        pass  # a client that is gone


class FakeServer:
    """A server on loopback.

    faults    of the next requests for tokens: a status, "drop" (the connection is cut), "cut" (half
              an answer), "slow" (longer than any time-out), "short" (one token less), "nonsense",
              or None
    asked     the bodies of all requests for tokens
    keys      what came as Authorization
    """

    def __init__(
        self,
        law,
        *,
        vocab_size,
        dialect=LLAMA,
        model="tiny",
        tokenizer=None,
        ends=(),
        context=64,
        kept=None,
        half=(),
        key=None,
        port=0,
    ):
        self.law, self.vocab_size, self.dialect, self.model = law, vocab_size, dialect, model
        self.tokenizer, self.ends, self.context, self.kept = tokenizer, set(ends), context, kept
        self.half = set(half)  # half characters, which llama.cpp leaves out of its list
        self.key, self.faults, self.asked, self.keys = key, [], [], []
        self.most_at_once, self._now, self.delay = 0, 0, 0.0
        self._lock, self._port = threading.Lock(), port
        self._open = set()

    def __enter__(self):
        self._http = _Http(("127.0.0.1", self._port), _handler(self))
        self._port = self._http.server_address[1]
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()
        with self._lock:
            still_open = list(self._open)
        for each in still_open:  # as a process that is killed does
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=5)

    @property
    def url(self):
        return f"http://127.0.0.1:{self._port}"

    @property
    def tokens_asked(self):
        """Tokens that all requests asked for."""
        return sum(body.get("n_predict", body.get("max_tokens", 0)) for body in self.asked)

    # ------------------------------------------------------------------ what a real one does

    def probs(self, prefix):
        return [float(p) for p in self.law(tuple(prefix))]

    def write(self, prefix, count, seed, options):
        """Tokens and laws, drawn as the samplers of the request say."""
        prefix, written = list(prefix), []
        rng = random.Random(f"{seed} {prefix}")
        for _ in range(min(count, self.context - len(prefix))):
            probs = self.probs(prefix)
            changed = _changed(probs, options, self.kept)
            token = rng.choices(range(len(changed)), changed)[0]
            written.append((token, probs))
            prefix.append(token)
            if token in self.ends:
                break
        return written

    def answer(self, body):
        llama = self.dialect == LLAMA
        prefix, seed = body["prompt"], body["seed"]
        count = body["n_predict" if llama else "max_tokens"]
        if not prefix or len(prefix) >= self.context or max(prefix) >= self.vocab_size:
            return 400, {"error": {"message": "the prompt does not fit", "code": 400}}
        with self._lock:
            self.asked.append(body)
        written = self.write(prefix, count, seed, body)
        ended = bool(written) and written[-1][0] in self.ends
        return 200, (_llama if llama else _vllm)(self, body, written, ended)


def _changed(probs, options, kept):
    """The weights from which a token is drawn, by the options of a request."""
    temperature = options["temperature"]
    bias = options.get("logit_bias") or {}
    if isinstance(bias, dict):
        gone = {int(token) for token in bias}
    else:
        gone = {token for token, value in bias if value is False}
    weights = [0.0 if token in gone else p for token, p in enumerate(probs)]
    order = sorted(range(len(weights)), key=lambda token: (-weights[token], token))
    if temperature == 0:
        return [float(token == order[0]) for token in range(len(weights))]
    weights = [p ** (1 / temperature) for p in weights]
    most = options["top_k"] if options["top_k"] > 0 else len(weights)
    most = min(most, kept or len(weights))  # `kept` is a sampler that nobody asked for
    total, reached, nucleus = sum(weights[token] for token in order[:most]), 0.0, set()
    for token in order[:most]:
        if reached >= options["top_p"] * total - 1e-12 and nucleus:
            break
        nucleus.add(token)
        reached += weights[token]
    return [p if token in nucleus else 0.0 for token, p in enumerate(weights)]


def _log(p):
    return math.log(p) if p > 0 else -1e9


def _tops(probs, most):
    order = sorted(range(len(probs)), key=lambda token: (-probs[token], token))
    return [(token, _log(probs[token])) for token in order[:most]]


def _llama(server, body, written, ended):
    said = _llama_whole(server, body, written, ended)
    if not said["completion_probabilities"]:
        del said["completion_probabilities"]  # as the real one does
    return said


def _llama_whole(server, body, written, ended):
    return {
        "content": "",
        "tokens": [token for token, _ in written],
        "model": server.model,
        "truncated": False,
        "stop_type": "eos" if ended else "limit",
        "generation_settings": {"samplers": body["samplers"]},
        "completion_probabilities": []
        if body["n_probs"] == 0
        else [
            {
                "id": token,
                "logprob": _log(probs[token]),
                "top_logprobs": [
                    {"id": each, "logprob": value} for each, value in _tops(probs, body["n_probs"])
                ],
            }
            for token, probs in written
            if token not in server.half
        ],
    }


def _vllm(server, body, written, ended):
    tops = []
    weighed = "logprobs" in body
    for token, probs in written if weighed else ():
        listed = {f"token_id:{token}": _log(probs[token])}
        listed |= {f"token_id:{t}": value for t, value in _tops(probs, body["logprobs"])}
        tops.append(listed)
    return {
        "model": server.model,
        "choices": [
            {
                "text": "",
                "token_ids": [token for token, _ in written],
                "logprobs": None
                if not weighed
                else {
                    "token_logprobs": [_log(probs[token]) for token, probs in written],
                    "top_logprobs": tops,
                },
                "finish_reason": "stop" if ended else "length",
            }
        ],
    }


def _handler(server):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def setup(self):
            super().setup()
            with server._lock:
                server._open.add(self.connection)

        def finish(self):
            with server._lock:
                server._open.discard(self.connection)
            super().finish()

        def do_GET(self):
            if not self._allowed():
                return
            llama, vllm = server.dialect == LLAMA, server.dialect == VLLM
            own = {"id": server.model, "owned_by": "vllm" if vllm else "llamacpp"}
            own |= {"max_model_len": server.context} if vllm else {}
            own |= {"meta": {"n_vocab": server.vocab_size, "n_params": 1}} if llama else {}
            props = {"default_generation_settings": {"n_ctx": server.context}, "build_info": "fake"}
            known = {"/v1/models": {"data": [own]}}
            known |= {"/version": {"version": "0.fake"}} if vllm else {}
            known |= {"/props": props} if llama else {}
            self._send(200 if self.path in known else 404, known.get(self.path, {}))

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self._allowed():
                return
            if self.path == "/tokenize":
                text = body.get("content", body.get("prompt"))
                if server.tokenizer is None:
                    return self._send(404, {})
                ids = server.tokenizer(text, add_special_tokens=False)["input_ids"]
                return self._send(200, {"tokens": list(ids)})
            if self.path not in ("/completion", "/v1/completions"):
                return self._send(404, {})
            with server._lock:
                fault = server.faults.pop(0) if server.faults else None
                server._now += 1
                server.most_at_once = max(server.most_at_once, server._now)
            try:
                self._complete(body, fault)
            finally:
                with server._lock:
                    server._now -= 1

        def _complete(self, body, fault):
            if server.delay:
                time.sleep(server.delay)
            if isinstance(fault, int):
                told = {"error": {"message": f"wait, {self.headers.get('Authorization')}"}}
                return self._send(fault, told, {"Retry-After": "0"} if fault == 429 else {})
            if fault == "drop":
                self.close_connection = True
                return self.connection.shutdown(socket.SHUT_RDWR)
            if fault == "slow":
                time.sleep(0.5)
            status, said = server.answer(body)
            if fault == "nonsense":
                said = {"hello": 1}
            if fault == "short" and server.dialect == LLAMA:
                said["tokens"] = []
            data = json.dumps(said).encode()
            if fault == "cut":
                self.close_connection = True
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2])
                return None
            return self._send(status, said)

        def _allowed(self):
            given = self.headers.get("Authorization")
            with server._lock:
                server.keys.append(given)
            if server.key is None or given == f"Bearer {server.key}":
                return True
            self._send(401, {"error": {"message": f"wrong key {given}"}})
            return False

        def _send(self, status, said, headers=None):
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(data)

    return Handler


class PairTokenizer:
    """Letters a, b and the pair ab, which is a token too: [a, b] and [ab] are one text, of which
    `encode` makes [ab] alone. Token 0 ends texts."""

    words = ("", "a", "b", "ab", " ")
    eos_token_id, bos_token_id, chat_template, pad_token_id, unk_token_id = (
        0,
        None,
        None,
        None,
        None,
    )

    def __call__(self, text, add_special_tokens=False):
        ids, rest = [], text
        while rest:
            fitting = [k for k, word in enumerate(self.words) if word and rest.startswith(word)]
            if not fitting:
                rest = rest[1:]  # other characters are no tokens
                continue
            ids.append(max(fitting, key=lambda k: len(self.words[k])))
            rest = rest[len(self.words[ids[-1]]) :]
        return {"input_ids": ids}

    def decode(self, ids, **_):
        return "".join(self.words[k] for k in ids)

    def get_vocab(self):
        return {word or "<eos>": k for k, word in enumerate(self.words)}

    def get_added_vocab(self):
        return {}
