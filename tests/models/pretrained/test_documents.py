"""Text as documents: folders, files, WikiText's form, docstrings; and what is no corpus."""

import pytest
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.models.pretrained import documents as docs
from triptych.models.pretrained.documents import read_documents

WIKITEXT = """
 = First = 

 It has 1 @,@ 000 well @-@ known frogs . 
 = = Section = = 

 More text . 

 = Second = 

 Other text . 
"""


def test_articles_of_wikitext():
    assert docs.split_articles(WIKITEXT) == [
        ["It has 1,000 well-known frogs .", "More text ."],
        ["Other text ."],
    ]


def test_a_folder_and_a_file(tmp_path):
    (tmp_path / "b.txt").write_text("One\nline.\n\nAnother.")
    (tmp_path / "a.txt").write_text("First.")
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "c.md").write_text("Not read.")
    assert read_documents(tmp_path) == [["First."], ["One line.", "Another."]]
    assert read_documents(tmp_path / "b.txt") == [["One line."], ["Another."]]


def test_python_help_is_text():
    found = read_documents("python-help")
    assert len(found) > 60
    assert any("assignment" in paragraph for document in found for paragraph in document)
    assert not any(">>>" in p[:3] for document in found for p in document)


def test_docstrings_without_their_examples():
    text = "Add numbers.\n\n>>> add(1, 2)\n3\n\nMore about adding\n>>> add(2, 2)"
    assert docs._prose(text) == ["Add numbers.", "More about adding"]
    found = list(docs._docstrings_of("fractions"))
    assert any("rational number" in text for text in found)
    assert list(docs._docstrings_of("no_such_module")) == []
    assert set(docs.docstring_versions()) == {"python", "numpy", "scipy", "torch"}


def test_what_is_no_corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path / "nothing"))
    with refused("folder"):
        read_documents(tmp_path)
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(UserError, match="has no text: all of it is empty"):
        read_documents(tmp_path)
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is not plain text in UTF-8"):
        read_documents(tmp_path / "bytes.txt")
    with pytest.raises(UserError, match="run `triptych fetch wikitext2`"):
        read_documents("wikitext2")
    with pytest.raises(
        UserError, match="there is no corpus 'wikitext'.*one of wikitext2, docstrings"
    ):
        read_documents("wikitext")
    with pytest.raises(UserError, match="the corpus is ''"):
        read_documents("")
