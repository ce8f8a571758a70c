"""Guided generation for people with Hugging Face models.

One function for each guided algorithm makes a `custom_generate` for `model.generate`:

    search = triptych.hf.backtracking(rule, quota=4, stride=4, tokenizer=tokenizer)
    ids = model.generate(**inputs, custom_generate=search, do_sample=True, max_new_tokens=40)

The functions are made of the algorithms' own classes: `dir(triptych.hf)` lists them, and each has
a help. Tokenwise reweighting is a logits processor too, for use with anything else of `generate`:

    processor = triptych.hf.ValueLogitsProcessor(rule, tokenizer)
    ids = model.generate(**inputs, logits_processor=[processor], do_sample=True)
"""

from collections.abc import Callable

from triptych.guidance.custom_generate import CustomGenerate, factory
from triptych.guidance.logits import ValueLogitsProcessor as ValueLogitsProcessor
from triptych.inference.guided.algorithm import algorithms


def __getattr__(name: str) -> Callable[..., CustomGenerate]:
    if name.startswith("_") or name not in algorithms():
        raise AttributeError(
            f"triptych.hf has no {name!r}; it has ValueLogitsProcessor, {', '.join(algorithms())}"
        )
    globals()[name] = factory(algorithms()[name])
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(["ValueLogitsProcessor", *algorithms()])
