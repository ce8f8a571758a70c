"""The page of replays: one or two algorithms on the same task, under one player."""

from triptych.core.validation import UserError, as_list, as_number, as_seed, shown
from triptych.inference.guided.algorithm import algorithms
from triptych.lab.replay import demonstrations
from triptych.lab.replay.comparison import Side, render_comparison
from triptych.lab.serving.questions import Question, as_choice, check_names

NAMES = ("algorithms", "task", "noise", "seed")


def choices() -> dict[str, list[str]]:
    """The algorithms and tasks that a page can ask for."""
    return {"algorithms": list(algorithms()), "tasks": list(demonstrations.TASKS)}


def page(question: Question) -> str:
    """The replays of one or two algorithms as an HTML page, with their costs.

    Worked value: ancestral sampling of 8 bits asks the model 8 times and the verifier never.
    """
    check_names(question, NAMES)
    known = choices()  # names alone: a file of somebody's own is never run from here
    names = as_list("algorithms", question["algorithms"], "names")
    if not 1 <= len(names) <= 2:
        raise UserError(
            f"algorithms is {shown(names)}; it must have one name or two", parameter="algorithms"
        )
    task = as_choice("task", question["task"], known["tasks"])
    noise = as_number("noise", question["noise"], at_least=0, at_most=1)
    seed = as_seed(question["seed"], at_most=2**31)
    demo = demonstrations.demonstration(task, seed=seed)
    sides, told = list[Side](), ""
    for name in names:
        chosen = algorithms()[as_choice("algorithms", name, known["algorithms"])]
        verifier, told = demonstrations.noisy(demo, soft=chosen.soft, noise=noise, seed=seed)
        result = demonstrations.generate(chosen(), demo, verifier, seed=seed)
        text = demo.text(result.tokens[0, : int(result.lengths[0])].tolist())
        side = Side(chosen.title, result, [text], demo.correct(result), demo.names, told)
        sides.append(side)
    title = " against ".join(side.title for side in sides)
    return render_comparison(sides, title=f"{title}: {demo.title}", about=demo.about)
