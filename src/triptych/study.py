"""What a study of your own is made of: settings, units, rows, checks and figures.

    from triptych.study import Claim, Scale, Settings, Study, Unit, above, decide, mean

`triptych new study NAME` writes one that runs.

The study
    Study, its Settings at each Scale, Unit of work, the Bench that `run` is given, Rows, Claim.
The judge
    decide makes a Verdict of checks, each a Check: above, below, within, exactly, none and shown;
    at_edge says where a statement stops, at_least and largest what evidence it needs, a Need.
Numbers with intervals
    An Estimate, by mean or bootstrap; difference, scaled and mean_series.
Figures as data
    Figure, Panel, Series, Heatmap.
"""

from typing import TYPE_CHECKING

from triptych.names import loaded_when_used

if TYPE_CHECKING:
    from triptych.core.estimates import Estimate as Estimate
    from triptych.core.estimates import bootstrap as bootstrap
    from triptych.core.estimates import mean as mean
    from triptych.studies.api.decide import Need as Need
    from triptych.studies.api.decide import above as above
    from triptych.studies.api.decide import at_edge as at_edge
    from triptych.studies.api.decide import at_least as at_least
    from triptych.studies.api.decide import below as below
    from triptych.studies.api.decide import decide as decide
    from triptych.studies.api.decide import exactly as exactly
    from triptych.studies.api.decide import largest as largest
    from triptych.studies.api.decide import none as none
    from triptych.studies.api.decide import shown as shown
    from triptych.studies.api.decide import within as within
    from triptych.studies.api.figures import Figure as Figure
    from triptych.studies.api.figures import Heatmap as Heatmap
    from triptych.studies.api.figures import Panel as Panel
    from triptych.studies.api.figures import Series as Series
    from triptych.studies.api.study import Bench as Bench
    from triptych.studies.api.study import Claim as Claim
    from triptych.studies.api.study import Rows as Rows
    from triptych.studies.api.study import Scale as Scale
    from triptych.studies.api.study import Settings as Settings
    from triptych.studies.api.study import Study as Study
    from triptych.studies.api.study import Unit as Unit
    from triptych.studies.api.summaries import difference as difference
    from triptych.studies.api.summaries import mean_series as mean_series
    from triptych.studies.api.summaries import scaled as scaled
    from triptych.studies.api.verdicts import Check as Check
    from triptych.studies.api.verdicts import Verdict as Verdict

# made from these imports by `python tools/names.py`
_HOME = {
    "Bench": "studies.api.study:Bench",
    "Check": "studies.api.verdicts:Check",
    "Claim": "studies.api.study:Claim",
    "Estimate": "core.estimates:Estimate",
    "Figure": "studies.api.figures:Figure",
    "Heatmap": "studies.api.figures:Heatmap",
    "Need": "studies.api.decide:Need",
    "Panel": "studies.api.figures:Panel",
    "Rows": "studies.api.study:Rows",
    "Scale": "studies.api.study:Scale",
    "Series": "studies.api.figures:Series",
    "Settings": "studies.api.study:Settings",
    "Study": "studies.api.study:Study",
    "Unit": "studies.api.study:Unit",
    "Verdict": "studies.api.verdicts:Verdict",
    "above": "studies.api.decide:above",
    "at_edge": "studies.api.decide:at_edge",
    "at_least": "studies.api.decide:at_least",
    "below": "studies.api.decide:below",
    "bootstrap": "core.estimates:bootstrap",
    "decide": "studies.api.decide:decide",
    "difference": "studies.api.summaries:difference",
    "exactly": "studies.api.decide:exactly",
    "largest": "studies.api.decide:largest",
    "mean": "core.estimates:mean",
    "mean_series": "studies.api.summaries:mean_series",
    "none": "studies.api.decide:none",
    "scaled": "studies.api.summaries:scaled",
    "shown": "studies.api.decide:shown",
    "within": "studies.api.decide:within",
}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = loaded_when_used(__name__, _HOME)
