"""Right JSON texts a second on one server: the server's own grammar against ours, in one run.

    python -m tests.servers.json_rates http://127.0.0.1:8080 TOKENIZER [prompts]

The server is llama.cpp's, whose own masks come from `json_schema`. Ours are llguidance's, read
where this program runs. All draw from the model's own law, 32 prompts at once.
"""

import json
import math
import sys
import time

import jsonschema

from triptych.guidance.guide import guide
from triptych.inference.guided.adaptive import Adaptive
from triptych.inference.guided.tokenwise import Tokenwise
from triptych.models.served.served_lm import ServedLM
from triptych.verifiers.grammars.grammar import Grammar

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
PROMPT = 'A person as JSON, as {"name": "Ada", "age": 36}:\n'
TOKENS = 40


def right(text):
    try:
        jsonschema.validate(json.loads(text), SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def told(name, texts, seconds, more=""):
    good = sum(map(right, texts))
    print(
        f"{name}: {good} of {len(texts)} right, {good / seconds:.2f} right texts a second, "
        f"{seconds:.1f} s{more}",
        flush=True,
    )


def main(url, tokenizer, prompts="32"):
    lm, rows = ServedLM(url, tokenizer=tokenizer, in_flight=32), int(prompts)
    prefix = [lm.bos_token, *lm.encode([PROMPT])[0]]
    body = {"n_predict": TOKENS, "samplers": [], "temperature": 1.0, "cache_prompt": True}
    for turn in range(2):
        bodies = [
            {**body, "prompt": prefix, "seed": turn * rows + k, "json_schema": SCHEMA}
            for k in range(rows)
        ]
        began = time.perf_counter()
        texts = [said["content"] for said in lm.server.post_all("/completion", bodies)]
        told("the server's own json_schema", texts, time.perf_counter() - began)
        for algorithm in (Tokenwise(tries=1000), Adaptive(n=1), Adaptive(n=4)):
            rule = Grammar.from_json_schema(SCHEMA)
            began = time.perf_counter()
            found = guide(
                lm, [PROMPT] * rows, rule, algorithm, max_new_tokens=TOKENS, rng=turn, batch=rows
            )
            seconds, totals = time.perf_counter() - began, found.totals
            more = f", {totals['requests']} requests, {totals['drawn']} tokens"
            if found.log_evidence is not None:
                alive = [math.exp(each) for each in found.log_evidence]
                more += f", evidence {sum(alive) / len(alive):.2e}"
            told(repr(algorithm), found.texts, seconds, more)


if __name__ == "__main__":
    main(*sys.argv[1:])
