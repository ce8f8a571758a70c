"""Every public callable, given one odd argument, answers without nan or refuses in a sentence.

The calls are made in a process of their own (`odd_inputs.py`), because the suite's run-time shape
checks would refuse odd values before our own sentences do, and users run without those checks.
"""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from triptych.inference.guided.algorithm import Algorithm, algorithms
from triptych.inference.guided.backtracking import Backtracking

REPOSITORY = Path(__file__).parents[2]

IN_ARRAYS = [
    "as_bool_mask",
    "as_distributions",
    "as_floats",
    "as_integers",
    "as_positions",
    "check_distributions",
    "check_floats",
]
IN_DISPLAY = [
    "bars",
    "card",
    "counted",
    "cut",
    "facts_table",
    "heat_map",
    "name_of",
    "number",
    "records_table",
]
IN_FILES = [
    "lock_folder",
    "refuse_if_locked",
    "remove_parts",
    "replacing",
    "sum_of",
    "write_bytes",
    "write_json",
    "write_tensors",
    "write_text",
]
IN_LOCKS = ["is_alive", "lock"]
IN_RAGGED = [
    "Ragged.some",
    "answers_of_rows",
    "as_lengths",
    "as_ragged",
    "as_weights",
    "full_rows",
    "inside",
    "log_prob_of_rows",
    "log_shown",
    "seen_vocab",
]
SPIN_DATA = [
    "",
    ".chosen",
    ".covariance",
    ".exact",
    ".masked",
    ".model",
    ".sandwich",
    ".some",
    ".theta",
]
IN_SCALARS = [
    "as_count",
    "as_device",
    "as_end_token",
    "as_flag",
    "as_list",
    "as_number",
    "as_probability",
    "as_seed",
    "as_size",
    "as_text",
    "check_callable",
    "check_can",
    "shown",
]
IN_VALIDATION = [
    "as_asked",
    "as_masked",
    "as_prefix",
    "as_tokens",
    "check_count",
    "check_dimensions",
    "check_integers",
    "check_prefix",
    "check_probability",
    "check_room",
    "check_same_device",
    "check_sequences",
    "check_shape",
    "check_tokens",
    "moved_to",
    "raise_if_impossible",
    "set_fields",
]

# Callables that are not called with odd arguments, by the reason.
NOT_COVERED: dict[str, list[str]] = {
    "the entrance itself, which test_entrance.py tests in detail": [
        *(f"core.arrays.{name}" for name in IN_ARRAYS),
        *(f"core.scalars.{name}" for name in IN_SCALARS),
        *(f"core.validation.{name}" for name in IN_VALIDATION),
    ],
    "rows of different length: part of the entrance, called by fit and by questions with lengths": [
        *(f"core.ragged.{name}" for name in IN_RAGGED),
    ],
    "what models of transformers share; test_causal.py and test_own_code.py give them bad places": [
        "core.foreign_models.as_place",
        "core.foreign_models.on_disk_alone",
        "core.foreign_models.refuse_own_code",
    ],
    "the search of exact_law and law_of, which they make with checked limits": [
        "core.enumeration.Choices",
        "core.enumeration.Choices.begin",
        "core.enumeration.Choices.categorical",
        "core.enumeration.Choices.choose",
    ],
    "how we write that a name was renamed; test_deprecation.py tests what users meet": [
        "core.deprecation.Renamed",
        "core.deprecation.renamed",
        "core.deprecation.renamed_fields",
        "core.deprecation.renamed_names",
    ],
    "files and folders on disk; test_files.py and test_fit.py give them bad places": [
        *(f"core.files.{name}" for name in IN_FILES),
        *(f"core.locks.{name}" for name in IN_LOCKS),
        *(f"structures.saved.{name}" for name in ("is_saved", "load", "read", "save")),
    ],
    "parts of the entrance that several structures or rngs share; they get checked values": [
        "core.randomness.as_rows_of",
        "core.randomness.check_goes_on",
        "core.randomness.as_table",
        "structures.permutations.as_temperatures",
        "structures.soft_tokens.as_soft_tokens",
        "structures.soft_tokens.at_position",
    ],
    "texts and pages of objects, made from what the objects hold; test_display.py tests them": [
        *(f"core.display.{name}" for name in IN_DISPLAY),
        "structures.strings.digits",
        "structures.strings.likely_strings",
    ],
    "parts of the reader of test cases, which get a line of checked text and its literals": [
        "structures.plain.Case.of",
        "structures.plain.key",
        "structures.plain.read_line",
        "structures.plain.typed_key",
    ],
    "arithmetic of inner loops, on tensors that the callers have checked or made": [
        "core.decoders.is_end",
        "core.logspace.log1mexp",
        "core.logspace.log_conditional",
        "core.logspace.log_matmul",
        "core.logspace.log_normalise",
        "core.logspace.point_mass",
        "core.logspace.with_point_masses",
        "core.streams.mixed",
        "structures.parse.error_kind",
        "structures.messages.leave_one_out",
        "structures.messages.log_messages",
        "structures.messages.scaled_messages",
        "core.compiled.draw_alias",
        "core.compiled.library",
        "core.distinct.distinct_rows",
        "structures.compiled_messages.smooth_rows",
        "structures.compiled_messages.count_rows",
        "structures.expected_counts.chain_counts",
        "structures.expected_counts.log_counts",
        "structures.fast_messages.Buffers.make",
        "structures.fast_messages.Rescaling.for_chain",
        "structures.fast_messages.filter_forward",
        "structures.fast_messages.forget_excluded",
        "structures.fast_messages.pass_forward",
        "structures.fast_messages.rescale_in_place",
        "structures.fast_messages.predict_everywhere",
        "structures.fast_messages.smooth",
        "structures.stacks.stack_messages",
    ],
    "parts of an algorithm, called by algorithms with the rows of their own run": [
        "inference.best_of_n.all_candidates",
        "inference.best_of_n.branch",
        "inference.best_of_n.keep_best",
        "inference.best_of_n.values_of_full_prompts",
        "inference.best_of_n.whole_strings",
        "inference.costs.Costs",
        "inference.costs.Costs.empty",
        "inference.ahead.Ahead",
        "inference.ahead.Ahead.add",
        "inference.ahead.Ahead.erased",
        "inference.ahead.Ahead.forget",
        "inference.ahead.Ahead.lacking",
        "inference.ahead.Ahead.moved",
        "inference.ahead.Ahead.take",
        "inference.generation.Generation.draw_or_argmax",
        "inference.generation.Generation.drawing",
        "inference.generation.Generation.drawn_aside",
        "inference.generation.Generation.drawn_tokens",
        "inference.generation.Generation.top_laws",
        "inference.model_side.ModelSide.choose",
        "inference.model_side.ModelSide.count",
        "inference.model_side.ModelSide.draw",
        "inference.model_side.ModelSide.draw_or_argmax",
        "inference.model_side.ModelSide.drawing",
        "inference.model_side.ModelSide.drawn_aside",
        "inference.model_side.ModelSide.drawn_tokens",
        "inference.model_side.ModelSide.forget_alternatives",
        "inference.model_side.ModelSide.laws",
        "inference.model_side.ModelSide.model_laws",
        "inference.model_side.ModelSide.put",
        "inference.model_side.ModelSide.take_argmax",
        "inference.model_side.ModelSide.top_laws",
        "inference.model_side.ModelSide.transformed",
        "inference.generation.Generation.adopt",
        "inference.generation.Generation.forget_alternatives",
        "inference.generation.Generation.child_log_values",
        "inference.generation.Generation.choose",
        "inference.generation.Generation.count",
        "inference.generation.Generation.draw",
        "inference.generation.Generation.erase",
        "inference.generation.Generation.fork",
        "inference.generation.Generation.allowed_laws",
        "inference.generation.Generation.drawn_log_values",
        "inference.generation.Generation.hear",
        "inference.generation.Generation.judge",
        "inference.generation.Generation.laws",
        "inference.generation.Generation.log_values",
        "inference.generation.Generation.masks",
        "inference.generation.Generation.model_laws",
        "inference.generation.Generation.note",
        "inference.generation.Generation.open_rows",
        "inference.generation.Generation.put",
        "inference.generation.Generation.result",
        "inference.generation.Generation.said",
        "inference.generation.Generation.stop",
        "inference.generation.Generation.take_argmax",
        "inference.generation.Generation.transformed",
        "inference.generation.Generation.within_budget",
        "inference.majority.winner",
        "inference.resampling.as_they_stand",
        "inference.resampling.cloud_law",
        "inference.resampling.effective_size",
        "inference.resampling.even_out",
        "inference.resampling.finish",
        "inference.resampling.normalised",
        "inference.resampling.open_particles",
        "inference.resampling.pick",
        "inference.resampling.resample",
        "inference.result.Result",
        "inference.visited.VisitedTree",
        "inference.visited.VisitedTree.close",
        "inference.visited.VisitedTree.enter",
        "inference.visited.VisitedTree.look_into",
        "inference.visited.VisitedTree.stuck",
    ],
    "checks of what models, verifiers and options say; choices of positions; test_odd_samplers.py "
    "and test_positions.py make them fail": [
        "inference.answers.check_answer",
        "inference.answers.check_laws",
        "inference.answers.check_sums",
        "inference.answers.described",
        "inference.answers.no_values",
        "inference.answers.probs_after",
        "inference.answers.value_of",
        "inference.answers.values_of",
        "inference.positions.draw",
        "inference.positions.drawn_positions",
        "inference.positions.highest",
        "inference.sequences.as_chains",
        "inference.sequences.check_masks",
        "inference.sequences.laws_at",
        "inference.sequences.masked_answer",
        "inference.options.as_copies",
        "inference.options.as_limit",
        "inference.options.check_choice",
        "inference.asking.answered",
        "inference.asking.as_verifier",
        "inference.asking.name_of_verifier",
        "inference.options.check_parts",
        "inference.options.check_table",
        "inference.options.end_set",
        "inference.options.path_counter",
        "inference.transforms.keeping_laws",
        "inference.transforms.of_laws",
        "verifiers.exact.as_ends",
        "verifiers.exact.check_laws",
        "verifiers.exact.values_of",
    ],
    "what all algorithms have; Backtracking stands for the others": [
        "inference.algorithm.Algorithm",
        "inference.settable.Option.clean",
        "inference.algorithm.algorithm_of",
        "inference.settable.option",
        "inference.settable.Settable",
        *(f"inference.settable.Settable.{method}" for method in ("of", "parse", "settings")),
        *(
            f"inference.{name}.{kind.__name__}.{method}"
            for name, kind in [("algorithm", Algorithm), *algorithms().items()]
            for method in (
                *("check_gives", "of", "of_text", "options", "parse"),
                *("run", "sample", "settings", "settled"),
            )
            if kind is not Backtracking or method in ("check_gives", "run", "of_text", "settled")
        ),
    ],
    "a question is made by a generation; its rows are those of a decoder": [
        "core.protocols.Question",
        "core.protocols.Question.about",
        "core.protocols.Question.by_length",
        "core.protocols.Question.some",
        "inference.asking.ByDecoder",
        "inference.asking.ByDecoder.log_values",
        "inference.asking.ByLength",
        "inference.asking.ByLength.log_values",
        "inference.transforms.KeepsLaws",
        "verifiers.leaves.ExactLeaves.log_values",
        "verifiers.text.EndingTextRule",
        "verifiers.text.EndingTextRule.finished_values",
        "verifiers.text.EndingTextRule.log_value",
        "verifiers.text.EndingTextRule.log_values",
        "verifiers.text.EndingTextRule.over",
        "verifiers.text.TextRule.log_values",
    ],
    "parts of audits, grammars and engines, which have read what a user gave": [
        "verifiers.json_pattern.pattern_of",
        "verifiers.regular.RegexPrefix.over_pieces",
        "verifiers.audit.Judge",
        "verifiers.audit.Judge.fits",
        "verifiers.audit.Judge.may_fit",
        "verifiers.audit.Judge.why_not",
        "verifiers.audit.reads",
        "verifiers.by_llguidance.compiled",
        "verifiers.by_rules.compiled",
        "verifiers.by_xgrammar.compiled",
        "verifiers.documents.atoms_of",
        "verifiers.documents.documents",
        "verifiers.documents.mutated",
        "verifiers.documents.parts",
        "verifiers.documents.smaller",
        "verifiers.documents.written",
        "verifiers.features.complaints",
        "verifiers.features.measured",
        "verifiers.features.pattern_complaints",
        "verifiers.grammar.Grammar.compiled",
        "verifiers.grammar.Grammar.complaints",
        "verifiers.verifier.GrammarVerifier",
        "verifiers.verifier.GrammarVerifier.finished_values",
        "verifiers.verifier.GrammarVerifier.log_values",
        "verifiers.verifier.GrammarVerifier.masks",
        "verifiers.verifier.GrammarVerifier.over",
        "verifiers.vocabulary.Vocabulary.beginning_with",
        "verifiers.vocabulary.Vocabulary.text",
        "verifiers.vocabulary.Vocabulary.within",
    ],
    "needs a classifier of transformers; test_reward.py gives it bad input": [
        "verifiers.reward.RewardModel",
        "verifiers.reward.RewardModel.from_pretrained",
    ],
    "needs a process reward model; test_process_reward.py gives it bad input": [
        "verifiers.process_reward.ProcessReward",
        "verifiers.process_reward.ProcessReward.from_pretrained",
        "verifiers.process_reward.ProcessReward.steps",
        "verifiers.step_forms.TokenClassifier.auto",
        "verifiers.step_forms.TokenClassifier.columns",
        "verifiers.step_forms.TokenClassifier.row",
        "verifiers.step_forms.StepTokens.auto",
        "verifiers.step_forms.StepTokens.columns",
        "verifiers.step_forms.StepTokens.row",
        "verifiers.step_forms.TaggedSteps.auto",
        "verifiers.step_forms.TaggedSteps.columns",
        "verifiers.step_forms.TaggedSteps.row",
        "verifiers.step_forms.JudgedTurns.auto",
        "verifiers.step_forms.JudgedTurns.columns",
        "verifiers.step_forms.JudgedTurns.row",
        "verifiers.step_forms.SequenceClassifier.auto",
        "verifiers.step_forms.SequenceClassifier.columns",
        "verifiers.step_forms.SequenceClassifier.row",
        "verifiers.step_forms.at_marks",
        "verifiers.step_forms.probabilities",
        "verifiers.text_models.as_label",
        "verifiers.text_models.as_length",
        "verifiers.text_models.as_prompts",
        "verifiers.text_models.as_texts",
        "verifiers.text_models.conversation",
        "verifiers.text_models.cutting_the_beginning",
        "verifiers.text_models.last_said",
        "verifiers.text_models.loaded",
        "verifiers.text_models.messages_of",
        "verifiers.text_models.padding_token",
        "verifiers.text_models.short",
    ],
    "data that fit has checked, and a pass over them": [
        *(
            f"structures.chain_data.{name}"
            for kind in ("ChainData", "MemoryData", "ShownData")
            for name in (kind, f"{kind}.expected", f"{kind}.some")
        ),
        "structures.chain_data.weighted",
        *(f"structures.spin_data.SpinData{name}" for name in SPIN_DATA),
        "structures.spin_fit.fit_spins",
        "structures.string_data.StringData",
        "structures.string_data.StringData.expected",
        "structures.string_data.StringData.some",
        "structures.string_data.random_rules",
        "structures.string_data.read_strings",
        "structures.string_data.rule_names",
        "structures.string_data.split_rules",
        "structures.cfg.CFG.rule_counts",
        "structures.urn_fit.fit_urn",
        "structures.urn_fit.log_urn",
    ],
    "reads a network's states, which no decoder without a network has": [
        "verifiers.probe.Probe.log_values",
    ],
}

LISTED = list(itertools.chain(*NOT_COVERED.values()))

# Where a huge number is a huge amount of work that was asked for, and may take forever.
REPETITIONS = (
    "inference.best_of_n.kept_probs.n",
    "inference.best_of_n.law.n",
    "inference.blocks.law.n",
    "inference.gibbs.run.steps",
    "inference.refinement.refine.steps",
    "inference.spins.SpinGibbs.fast_sweep.sweeps",
    "inference.spins.SpinGibbs.sweep.sweeps",
    "inference.vgb.sample.steps",
    "verifiers.probe.split_score.repetitions",
)

# Where nan is given on purpose, for what is not known, and comes back.
UNKNOWN = tuple(f"core.estimates.Estimate.{name}" for name in ("value", "low", "high"))

# call.parameter that is right for every value of ODD, but refuses some ordinary ones, as a length
# of 7 for a model of length 2, with a sentence about something else
KNOWN = set((REPOSITORY / "tests" / "support" / "odd_known.txt").read_text().split())


def f(text):
    return {"float": text}


def i(value):
    return {"int": str(value)}


def tensor(dtype, data):
    return {"tensor": dtype, "data": data}


ODD = {
    "nan": f("nan"),
    "inf": f("inf"),
    "-inf": f("-inf"),
    "1e308": f("1e308"),
    "1e-310": f("1e-310"),
    "2.5": f("2.5"),
    "2.0": f("2.0"),
    "-1": i(-1),
    "0": i(0),
    "2**63": i(2**63),
    "-2**70": i(-(2**70)),
    "True": True,
    "None": None,
    "text": "a",
    "no text": "",
    "complex": {"complex": 1},
    "object": {"object": 1},
    "function": {"function": 1},
    "dict": {"dict": 1},
    "[]": [],
    "[[]]": [[]],
    "[0, 1]": [0, 1],
    "[[0, 1, 0]]": [[0, 1, 0]],
    "[[-1, 0, 0]]": [[-1, 0, 0]],
    "[[0, 9, 0]]": [[0, 9, 0]],
    "ragged": [[0], [0, 1]],
    "texts": ["a", "b"],
    "lists of text": [["a"]],
    "list of None": [None],
    "list of floats": [f("0.5"), f("0.5")],
    "list of nan": [f("nan"), f("nan")],
    "lists of nan": [[f("nan")]],
    "huge in lists": [[i(2**63)]],
    "three deep": [[[f("0.5")]]],
    "numpy int": {"scalar": "int64", "data": 2},
    "numpy float": {"scalar": "float32", "data": f("0.5")},
    "numpy nan": {"scalar": "float64", "data": f("nan")},
    "numpy bool": {"scalar": "bool", "data": True},
    "numpy 0-d": {"numpy": "int64", "data": 2},
    "numpy ints": {"numpy": "int16", "data": [[0, 1, 0]]},
    "numpy floats": {"numpy": "float64", "data": [f("0.5"), f("0.5")]},
    "numpy float32": {"numpy": "float32", "data": [[f("0.5"), f("0.5")]]},
    "numpy bools": {"numpy": "bool", "data": [[True, False, False]]},
    "numpy text": {"numpy": "str", "data": ["a"]},
    "0-d int": tensor("int64", 2),
    "0-d float": tensor("float32", f("0.5")),
    "0-d nan": tensor("float64", f("nan")),
    "int32 row": tensor("int32", [0, 1]),
    "int32 rows": tensor("int32", [[0, 1, 0]]),
    "uint8 rows": tensor("uint8", [[0, 1, 0]]),
    "rows out of range": tensor("int64", [[0, 9, -4]]),
    "float32 rows": tensor("float32", [[f("0.5"), f("0.5")]]),
    "float64 row": tensor("float64", [f("0.5"), f("0.5")]),
    "float64 rows": tensor("float64", [[f("0.5"), f("0.5")]]),
    "nan row": tensor("float64", [f("nan"), f("0.5")]),
    "nan rows": tensor("float64", [[f("nan"), f("0.5")]]),
    "inf rows": tensor("float64", [[f("inf"), f("0.5")]]),
    "bool rows": tensor("bool", [[True, False, True]]),
    "complex rows": tensor("complex64", [[0, 1]]),
    "four deep": tensor("float64", [[[[f("0.5")]]]]),
    "empty": {"empty": [0], "dtype": "float32"},
    "no rows": {"empty": [0, 3], "dtype": "int64"},
    "no columns": {"empty": [2, 0], "dtype": "int64"},
    "no bools": {"empty": [0, 0], "dtype": "bool"},
}

numbers = st.one_of(
    st.floats(width=64).map(lambda x: f(repr(x))),
    st.integers(-3, 9).map(i),
    st.integers(2**62, 2**80).map(i),  # a million rows are no mistake, and take their time
    st.integers(-(2**80), -1).map(i),
)
rows = st.lists(st.lists(numbers, max_size=3), max_size=3)
even_rows = st.tuples(st.integers(0, 3), st.integers(0, 3)).flatmap(
    lambda shape: st.lists(
        st.lists(st.integers(-2, 5), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)
ODD_VALUES = st.one_of(
    st.sampled_from(list(ODD.values())),
    numbers,
    rows,
    st.lists(numbers, max_size=4),
    st.text(max_size=3),
    st.builds(
        lambda dtype, data: tensor(dtype, data),
        st.sampled_from(["int64", "int32", "int16", "uint8", "float32", "float64", "bool"]),
        even_rows.map(lambda data: [[abs(x) for x in row] for row in data]),
    ),
    st.builds(
        lambda dtype, data: {"numpy": dtype, "data": data},
        st.sampled_from(["int64", "int8", "float32", "float64", "bool"]),
        even_rows,
    ),
)


class Worker:
    """The process that makes the calls; one that hangs beyond its own alarm is killed."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.odd_inputs"],
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the process died of {question}"
        return json.loads(line)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def worker():
    started = Worker()
    yield started
    started.close()


@pytest.fixture(scope="module")
def calls(worker):
    return worker.ask(list=True)


@pytest.fixture(scope="module")
def parameters(calls):
    """(call, parameter) of everything that is called."""
    return [
        (name, parameter)
        for name, call in calls.items()
        if name not in LISTED
        for parameter in call["parameters"]
    ]


def is_broken(name, parameter, answer):
    if answer["outcome"] == "hang" and f"{name}.{parameter}" in REPETITIONS:
        return False
    if answer["outcome"] == "nan" and f"{name}.{parameter}" in UNKNOWN:
        return False
    return answer["outcome"] not in ("answer", "refused")


def test_every_public_callable_is_covered_or_listed(calls):
    """A new callable needs right arguments in `odd_arguments.py`, or a place and a reason here."""
    assert len(LISTED) == len(set(LISTED))
    problems = {name: call["problem"] for name, call in calls.items() if call["problem"]}
    assert {name: why for name, why in problems.items() if name not in LISTED} == {}
    assert sorted(set(LISTED) - set(calls)) == [], "these are gone: take them off the list"


def test_an_odd_argument_is_answered_or_refused(worker, parameters):
    """A sample of all calls and of odd values, the same in every run."""
    lawful = [pair for pair in parameters if ".".join(pair) not in KNOWN]
    failures = []

    @given(pair=st.sampled_from(lawful), value=ODD_VALUES)
    @settings(
        max_examples=1200,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(pair, value):
        name, parameter = pair
        answer = worker.ask(call=name, parameter=parameter, value=value)
        if is_broken(name, parameter, answer):  # raising here would ask a call that hangs again
            failures.append((name, parameter, value, answer))

    ask()
    assert failures == []


@pytest.mark.slow
def test_every_odd_argument_everywhere(worker, parameters):
    """All odd values at every parameter of every call."""
    failures = {}
    for name, parameter in parameters:
        for odd, value in ODD.items():
            answer = worker.ask(call=name, parameter=parameter, value=value)
            if is_broken(name, parameter, answer):
                failures[f"{name}.{parameter}"] = (odd, answer)
    assert failures == {}
