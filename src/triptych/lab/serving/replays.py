"""The page of replays: one or two algorithms on the same task, with their costs."""

from typing import Any

from triptych.core.validation import as_number, as_seed
from triptych.inference.guided.algorithm import algorithms
from triptych.inference.guided.generation import Result
from triptych.lab.replay import demonstrations
from triptych.lab.replay.page import render_trace
from triptych.lab.serving.questions import Question, as_choice, check_names

NAMES = ("algorithm", "task", "noise", "seed")


def choices() -> dict[str, list[str]]:
    """The algorithms and tasks that a page can ask for."""
    return {"algorithms": list(algorithms()), "tasks": list(demonstrations.TASKS)}


def answer(question: Question) -> dict[str, Any]:
    """What one generation wrote, whether it is right, and what it cost.

    Worked value: ancestral sampling of 8 bits asks the model 8 times and the verifier never.
    """
    demo, result, _ = _generated(question)
    right = demo.correct(result)[0]
    costs = result.costs
    return {
        "title": algorithms()[question["algorithm"]].title,
        "text": demo.text(result.tokens[0, : int(result.lengths[0])].tolist()),
        "right": right,
        "model": int(costs.generator_calls[0]),
        "verifier": int(costs.verifier_calls[0]),
        "written": int(costs.generated[0]),
        "erased": int(costs.erased[0]),
    }


def page(question: Question) -> str:
    """The replay of the same generation, as an HTML page."""
    demo, result, told = _generated(question)
    chosen = algorithms()[question["algorithm"]]
    return render_trace(
        result,
        names=demo.names,
        title=f"{chosen.title}: {demo.title}",
        about=f"{demo.about} {told}",
        correct=demo.correct(result),
    )


def _generated(question: Question) -> tuple[demonstrations.Demonstration, Result, str]:
    check_names(question, NAMES)
    known = choices()  # names alone: a file of somebody's own is never run from here
    chosen = algorithms()[as_choice("algorithm", question["algorithm"], known["algorithms"])]
    task = as_choice("task", question["task"], known["tasks"])
    noise = as_number("noise", question["noise"], at_least=0, at_most=1)
    seed = as_seed(question["seed"], at_most=2**31)
    demo = demonstrations.demonstration(task, seed=seed)
    verifier, told = demonstrations.noisy(demo, soft=chosen.soft, noise=noise, seed=seed)
    return demo, demonstrations.generate(chosen(), demo, verifier, seed=seed), told
