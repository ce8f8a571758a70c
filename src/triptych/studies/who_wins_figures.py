"""The figures of `who_wins`, and the tables of winners that their titles are made of."""

from triptych.studies.figures import Figure
from triptych.studies.study import Rows

def accuracy_figure(rows: Rows) -> Figure: ...
def law_figure(rows: Rows) -> Figure: ...
