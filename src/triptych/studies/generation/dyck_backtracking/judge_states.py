"""What the rows say about the network, its states and the probe [li, 3.2.1.1, 3.2.1.2 and 3.2.1.6].

The published accuracy of the probe is asked of probes as published alone: of the same network, with
as many strings. Smaller networks are other networks; of every probe it is asked whether it is far
better than chance.
"""

from collections.abc import Callable
from dataclasses import replace

from triptych.core.estimates import Estimate
from triptych.studies.api.decide import Check, Verdict, above, below, decide, shown, within
from triptych.studies.api.study import Claim, Rows
from triptych.studies.api.summaries import scaled
from triptych.studies.generation.dyck_backtracking.comparisons import (
    ByNetwork,
    by_network,
    geometric_ratio,
    level,
    networks,
    over_networks,
)
from triptych.studies.generation.dyck_backtracking.rows import (
    LanguageModel,
    Picture,
    Row,
    Verifier,
    on_networks,
)

OUTSIDE = 240 / 10_000  # share of errors out of distribution; the text's 94.23 % says more
PROBE, PROBE_ERROR = 93.0, 3.9  # %, with its standard error
PROBE_NETWORK = (6, 512, 882)  # layers and width of the network, strings of the probe
FAR_FROM_CHANCE = 75.0  # %: nearer to always right than to guessing
A_FEW = 10.0  # fewer clusters than this are a few


def _percent(values: ByNetwork) -> Estimate:
    return scaled(over_networks(values), 100.0)


def judge_language_model(rows: Rows[Row]) -> Verdict:
    lms = rows.of(LanguageModel)
    if not lms:
        return decide(needs=[networks([])])
    inside = by_network((r.seed, r.in_accuracy) for r in lms)
    outside = by_network((r.seed, r.out_accuracy) for r in lms)
    more = geometric_ratio(
        by_network((r.seed, r.out_errors) for r in lms),
        by_network((r.seed, r.in_errors) for r in lms),
    )
    # what the published shares, 2.4 % and none, are with as many prompts
    prompts = min(r.prompts for r in lms)
    effect = (OUTSIDE * prompts + 0.5) / 0.5
    return decide(
        above(
            "prompts of the training law completed rightly, %",
            _percent(inside),
            99.0,
            published=100.0,
        ),
        above(
            "errors on prompts with other odds of the brackets, divided by errors on prompts of "
            "the training law",
            more,
            1.0,
            published=effect,
        ),
        shown(
            "prompts with other odds of the brackets completed rightly, %",
            _percent(outside),
            published=94.23,
        ),
        shown(
            "closing brackets for which the likelier type is the right one, on strings of the "
            "training law, %",
            _percent(by_network((r.seed, r.closing_accuracy) for r in lms)),
        ),
        needs=[networks(inside)],
        measured={"in_distribution": level(inside), "out_of_distribution": level(outside)},
    )


def judge_probe(rows: Rows[Row]) -> Verdict:
    probes = rows.of(Verifier)
    if not probes:
        return decide(needs=[networks([])])
    every = {r.seed: level(dict(enumerate(r.accuracies))) for r in probes}
    published = {
        r.seed: every[r.seed] for r in probes if (r.layers, r.width, r.strings) == PROBE_NETWORK
    }
    same_end = {
        r.seed: level(dict(enumerate(r.same_end_accuracies)))
        for r in probes
        if r.same_end_accuracies
    }
    token = {r.seed: r.last_token_accuracy for r in probes if r.last_token_accuracy is not None}
    checks: list[Check] = []
    if published:
        sentence = (
            "strings left out of training that the verifier judges rightly, network and number of "
            "strings as published, %"
        )
        checks.append(within(sentence, _percent(published), PROBE, by=2 * PROBE_ERROR))
    sentence = "strings left out of training that the verifier judges rightly, all networks, %"
    checks.append(above(sentence, _percent(every), FAR_FROM_CHANCE))
    if token:
        sentence = "strings judged rightly by their last token alone, %"
        checks.append(shown(sentence, _percent(token)))
    if same_end:
        sentence = "strings judged rightly where wrong and correct ones end in the same tokens, %"
        checks.append(shown(sentence, _percent(same_end)))
    return decide(
        *checks,
        needs=[networks(every)],
        measured={
            "validation_accuracy": level(published or every),
            "repetitions": min(len(r.accuracies) for r in probes),
        },
    )


def judge_picture(rows: Rows[Row]) -> Verdict:
    """A few clusters hold nearly all wrong strings; and they are theirs: correct strings with the
    same last tokens lie elsewhere, more than 99 shuffles of the kinds make it seem."""
    pictures = rows.of(Picture)
    if not pictures:
        return decide(needs=[networks([])])

    def over(value: Callable[[Picture], float]) -> Estimate:
        return over_networks(by_network((r.seed, value(r)) for r in pictures))

    return decide(
        below(
            "clusters in the plane that hold 90 % of the wrong strings",
            over(lambda r: r.clusters),
            A_FEW,
        ),
        above(
            "ten nearest neighbours that are wrong as the string is, or correct as it is, minus "
            "the most in 99 shuffles, percentage points",
            over(lambda r: 100 * (r.agreement - r.agreement_by_chance)),
            0.0,
        ),
        shown(
            "ten nearest neighbours that are wrong as the string is, or correct as it is, %",
            over(lambda r: 100 * r.agreement),
        ),
        shown(
            "ten nearest neighbours of the same kind, by distances between the states "
            "themselves, %",
            over(lambda r: 100 * r.agreement_of_states),
        ),
        shown(
            "clusters in the plane that hold 90 % of the correct strings",
            over(lambda r: r.clusters_of_correct),
        ),
        shown(
            "clusters of the wrong strings by distances between the states themselves",
            over(lambda r: r.clusters_of_states),
        ),
        needs=[networks(r.seed for r in pictures)],
    )


_LM = LanguageModel(0, 1e-4, 10_000, 1.0, 0, 0.976, 240, 1.0)
_PROBE = Verifier(0, 6, 512, 882, 90, (0.93, 0.94), 0.85, 860, (0.82, 0.83))
_SMALL = replace(_PROBE, layers=2, width=128, strings=600, accuracies=(0.9, 0.91))
_PICTURE = Picture(0, ((0.0, 0.0), (1.0, 1.0)), (0, 1), 0.85, 0.54, 0.86, 4, 6, 3, 10)

CLAIMS = [
    Claim(
        "li.dyck-lm",
        judge_language_model,
        refuted_by=[
            on_networks(replace(_LM, in_accuracy=0.9, in_errors=1000, out_errors=9000)),
            on_networks(replace(_LM, in_errors=60, out_errors=20)),
            on_networks(replace(_LM, in_errors=20, out_errors=20)),  # no effect
        ],
        held_by=on_networks(_LM),
    ),
    Claim(
        "li.verifier-dyck",
        judge_probe,
        refuted_by=[
            on_networks(replace(_PROBE, accuracies=(0.80, 0.82))),
            on_networks(replace(_PROBE, accuracies=(0.60, 0.62))),
            on_networks(replace(_PROBE, accuracies=(0.50, 0.51))),  # no effect
            on_networks(replace(_SMALL, accuracies=(0.60, 0.62))),
            on_networks(replace(_SMALL, accuracies=(0.50, 0.51))),
        ],
        held_by=[*on_networks(_PROBE), *[replace(_SMALL, seed=seed) for seed in (10, 11, 12)]],
    ),
    Claim(
        "li.fig-3.1",
        judge_picture,
        refuted_by=[
            on_networks(replace(_PICTURE, clusters=40)),
            on_networks(replace(_PICTURE, clusters=15)),
            on_networks(replace(_PICTURE, agreement=0.50)),  # wrong and correct strings are mixed
            on_networks(replace(_PICTURE, clusters=1, agreement=0.51)),
        ],
        held_by=on_networks(_PICTURE),
    ),
]
