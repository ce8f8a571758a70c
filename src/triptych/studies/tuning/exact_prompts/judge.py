"""Judges of the soft prompts: equations to rounding, labels, exact zeros off the support."""

from collections.abc import Sequence
from dataclasses import replace

from triptych.studies.api.decide import Verdict, at_least, decide, exactly, largest, none, shown
from triptych.studies.api.study import Claim, Rows
from triptych.studies.tuning.exact_prompts.rows import Disentangled, FakeToken, Prompted, Row

ENOUGH_INPUTS = 100


def judge_fake_token(rows: Rows[Row]) -> Verdict:
    models = rows.of(FakeToken)
    on, off = sum(row.supported for row in models), sum(row.off_support for row in models)
    return decide(
        exactly(
            "messages of the prompted model against the law of the hidden state with the fake "
            "token: largest difference",
            largest([r.state_error for r in models]),
        ),
        exactly(
            "answer of the prompted model against W times the posterior of the hidden state: "
            "largest difference",
            largest([r.output_error for r in models]),
        ),
        exactly(
            "answer of the prompted model against the law of token i given the others, i > 1: "
            "largest difference",
            largest([r.token_error for r in models]),
        ),
        exactly(
            "log probability of the other tokens, by the prompted model and with the fake token: "
            "largest difference, nats",
            largest([r.log_mass_error for r in models]),
        ),
        exactly(
            "largest entry of the answer where the other tokens are impossible, which must be 0",
            largest([r.value_off_support for r in models]),
            below=0.0,
        ),
        none(
            "positions at which one side calls the other tokens possible and the other side "
            "does not",
            sum(row.support_mismatches for row in models),
            of=on + off,
        ),
        needs=[
            at_least("positions in the support", on, ENOUGH_INPUTS),
            at_least("positions off the support", off, 1),
        ],
    )


def judge_disentangled(rows: Rows[Row]) -> Verdict:
    models = rows.of(Disentangled)
    scales = [row.smallest_scale for row in models if row.smallest_scale is not None]
    on, off = sum(row.supported for row in models), sum(row.off_support for row in models)
    return decide(
        exactly(
            "P[H2 | prompt, x] against the rescaled product of P[prompt, H2] and P[H0 | x]: "
            "largest difference",
            largest([row.equation_error for row in models]),
        ),
        none(
            "models in which the scalar r is not positive",
            sum(scale <= 0 for scale in scales),
            of=len(scales),
        ),
        exactly(
            "largest entry on inputs that the prompt makes impossible, which must be 0",
            largest([r.value_off_support for r in models]),
            below=0.0,
        ),
        needs=[
            at_least("inputs in the support", on, ENOUGH_INPUTS),
            at_least("inputs off the support", off, 1),
        ],
    )


def judge_prompted(rows: Rows[Row]) -> Verdict:
    """HOLDS needs |H| > |X| among the models and prompts off the support among the inputs."""
    models = [row for row in rows.of(Prompted) if row.conditions_hold]
    wide = [row for row in models if row.states > row.vocab]
    off = sum(row.off_support for row in models)
    return decide(
        none(
            "wrong labels of the prompt and the head that the proof builds",
            sum(row.wrong_labels for row in models),
            of=_labels(models),
        ),
        none(
            "inputs that the prompt makes impossible and whose score is not 0",
            sum(row.off_support_wrong for row in models),
            of=off,
        ),
        exactly(
            "score of the head against a positive multiple of the task μᵀP[H0 | x]: largest "
            "difference",
            largest([r.identity_error for r in models]),
        ),
        shown("models with more hidden states than tokens", float(len(wide))),
        shown(
            "models with more states than tokens on which no linear head works without a prompt",
            float(sum(not row.head_alone_works for row in wide)),
        ),
        needs=[
            at_least("inputs with a label, |H| > |X|", _labels(wide), ENOUGH_INPUTS),
            at_least("inputs off the support", off, 1),
        ],
    )


def _labels(models: Sequence[Prompted]) -> int:
    return sum(row.inputs - row.too_close_to_call - row.off_support for row in models)


_FAKE_TOKEN = FakeToken(0, "zeros", 4, "inside", 1e-16, 1e-16, 1e-16, 1e-15, 0.0, 0, 1000, 10)
_DISENTANGLED = Disentangled(0, "zeros", 12, 4, "inside", 1e-16, 1.0, 0.0, 1000, 10)
_PROMPTED = Prompted(
    seed=0,
    family="zeros",
    states=12,
    vocab=4,
    conditions_hold=True,
    margin=0.1,
    chosen=3,
    essential=4,
    identity_error=1e-14,
    wrong_labels=0,
    too_close_to_call=0,
    off_support=10,
    off_support_wrong=0,
    inputs=1000,
    head_alone_works=False,
    head_alone_wrong_share=0.1,
    positive_share=0.5,
)

CLAIMS: list[Claim[Row]] = [
    Claim(
        "wei.lem-B.1",
        judge_fake_token,
        refuted_by=[
            [_FAKE_TOKEN, replace(_FAKE_TOKEN, state_error=1e-3)],
            [_FAKE_TOKEN, replace(_FAKE_TOKEN, output_error=1e-3)],
            [_FAKE_TOKEN, replace(_FAKE_TOKEN, token_error=1e-3)],
            [_FAKE_TOKEN, replace(_FAKE_TOKEN, log_mass_error=1e-3)],
            [_FAKE_TOKEN, replace(_FAKE_TOKEN, value_off_support=1e-300)],
            [_FAKE_TOKEN, replace(_FAKE_TOKEN, support_mismatches=1)],
        ],
        held_by=[_FAKE_TOKEN],
    ),
    Claim(
        "wei.lem-B.2",
        judge_disentangled,
        refuted_by=[
            [_DISENTANGLED, replace(_DISENTANGLED, equation_error=1e-3)],
            [_DISENTANGLED, replace(_DISENTANGLED, smallest_scale=0.0)],
            [_DISENTANGLED, replace(_DISENTANGLED, value_off_support=1e-300)],
        ],
        held_by=[_DISENTANGLED],
    ),
    Claim(
        "wei.thm-3.6",
        judge_prompted,
        refuted_by=[
            [_PROMPTED, replace(_PROMPTED, identity_error=1e-3)],
            [_PROMPTED, replace(_PROMPTED, wrong_labels=1)],
            [_PROMPTED, replace(_PROMPTED, off_support_wrong=1)],
        ],
        held_by=[_PROMPTED],
    ),
]
