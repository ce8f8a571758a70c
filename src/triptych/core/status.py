"""The three things that evidence can say."""

from enum import Enum


class Status(Enum):
    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"
