"""The claims of `dyck_backtracking`: judges, rows that they must refuse and rows they hold."""

from typing import Any

from triptych.studies.dyck_tables import (
    judge_diversity,
    judge_language_model,
    judge_necessary,
    judge_picture,
    judge_probe,
    judge_quotas,
    judge_redo,
    judge_remaining,
    judge_strides,
    judge_unseen,
)
from triptych.studies.judging import without_nan
from triptych.studies.study import Claim, Row


def _networks(*rows: Row) -> list[Row]:
    """The same rows for three networks, a little apart."""
    return [{"seed": seed, **row} for seed in range(3) for row in rows]


_LM: Row = {
    "kind": "lm",
    "in_accuracy": 1.0,
    "out_accuracy": 0.94,
    "in_errors": 0,
    "out_errors": 600,
    "prompts": 10_000,
}
_PROBE: Row = {"kind": "verifier", "strings": 882, "accuracies": [0.93, 0.94]}
_PICTURE: Row = {"kind": "picture", "agreement": 0.95, "agreement_by_chance": 0.5}


def _stride(config: str, stride: int, accuracy: float) -> Row:
    return {"kind": "stride", "config": config, "stride": stride, "accuracy": accuracy}


def _quota(quota: int, stride: int, accuracy: float, plain: float = 0.35) -> Row:
    return {
        "kind": "quota",
        "quota": quota,
        "stride": stride,
        "into_prompt": True,
        "verify_redone": False,
        "accuracy": accuracy,
        "backtracks": 100,
        "before_refused_nucleus": plain,
        "with_refused_nucleus": plain,
        "with_refused_argmax": plain,
    }


def _quota_table(plain: float = 0.33, quota: float = 0.05, stride: float = 0.04) -> list[Row]:
    """Accuracies that grow by `quota` with each backtrack and `stride` with each token erased."""
    return _networks(
        _stride("nucleus", 0, plain),
        *(_quota(q, b, 0.4 + quota * (q - 1) + stride * (b - 2)) for q in (1, 4) for b in (2, 6)),
    )


def _count(top_p: float, quota: int, errors: int, **more: Any) -> Row:
    return {
        "kind": "unseen",
        "top_p": top_p,
        "quota": quota,
        "redo_argmax": True,
        "verify_redone": False,
        "into_prompt": False,
        "prompts": 10_000,
        "errors": errors,
        "error_kinds": {"wrong_close": errors},
        "quota_used_up": errors,
    } | more


def _diverse(top_p: float, quota: int, distinct: int) -> Row:
    row = {"kind": "diversity", "completions": 10, "distinct": [distinct, distinct]}
    return row | {"top_p": top_p, "quota": quota}


_STRIDES = _networks(
    _stride("nucleus", 0, 0.33), _stride("erased", 1, 0.4), _stride("erased", 8, 0.8)
)
_UNSEEN = _networks(
    _count(0.9, 0, 240), _count(0.9, 4, 180), _count(1.0, 0, 460), _count(1.0, 4, 200)
)
_REDO = _networks(_count(0.9, 4, 180), _count(0.9, 4, 245, redo_argmax=False))
_DIVERSE = _networks(_diverse(1.0, 4, 6), _diverse(1.0, 0, 6), _diverse(0.9, 0, 5))

CLAIMS = [
    Claim(
        "li.dyck-lm",
        without_nan(judge_language_model),
        [
            _networks(_LM | {"in_accuracy": 0.9}),
            _networks(_LM | {"in_errors": 60, "out_errors": 20}),
        ],
        _networks(_LM),
    ),
    Claim(
        "li.verifier-dyck",
        without_nan(judge_probe),
        [_networks(_PROBE | {"accuracies": [0.8, 0.82]})],
        _networks(_PROBE),
    ),
    Claim(
        "li.tab-3.1",
        without_nan(judge_strides),
        [
            _networks(
                _stride("nucleus", 0, 0.33), _stride("erased", 1, 0.34), _stride("erased", 8, 0.2)
            ),
            _networks(
                _stride("nucleus", 0, 0.33), _stride("erased", 1, 0.2), _stride("erased", 8, 0.8)
            ),
        ],
        _STRIDES,
    ),
    Claim(
        "li.tab-3.2",
        without_nan(judge_quotas),
        [
            _quota_table(plain=0.95),
            _quota_table(stride=-0.05),
            _quota_table(quota=-0.03),
        ],
        _quota_table(),
    ),
    Claim(
        "li.tab-3.3",
        without_nan(judge_unseen),
        [
            _networks(
                _count(0.9, 0, 170), _count(0.9, 4, 180), _count(1.0, 0, 460), _count(1.0, 4, 200)
            ),
            _networks(
                _count(0.9, 0, 240), _count(0.9, 4, 180), _count(1.0, 0, 190), _count(1.0, 4, 200)
            ),
        ],
        _UNSEEN,
    ),
    Claim(
        "li.fig-3.1",
        without_nan(judge_picture),
        [_networks(_PICTURE | {"agreement": 0.6})],
        _networks(_PICTURE),
    ),
    Claim(
        "li.tab-3.4",
        without_nan(judge_necessary),
        [_networks(_quota(1, 2, 0.42, plain=0.6), _quota(4, 6, 0.92))],
        _networks(_quota(1, 2, 0.42), _quota(4, 6, 0.92)),
    ),
    Claim(
        "li.fig-3.2",
        without_nan(judge_remaining),
        [
            _networks(_count(0.9, 4, 180, error_kinds={"too_late": 100, "wrong_close": 80})),
            _networks(_count(0.9, 4, 180, quota_used_up=90)),
        ],
        _networks(_count(0.9, 4, 180)),
    ),
    Claim(
        "li.tab-3.5",
        without_nan(judge_diversity),
        [_networks(_diverse(1.0, 4, 3), _diverse(1.0, 0, 6), _diverse(0.9, 0, 5))],
        _DIVERSE,
    ),
    Claim(
        "li.tab-3.16",
        without_nan(judge_redo),
        [_networks(_count(0.9, 4, 180), _count(0.9, 4, 150, redo_argmax=False))],
        _REDO,
    ),
]
