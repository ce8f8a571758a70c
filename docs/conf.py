"""Sphinx builds the documentation from this folder: `make docs`.

Warnings are errors there, so a link or a picture that leads nowhere stops the build. The pages
load nothing from other machines. The ledger, the glossary and the API pages are written by
`generated_pages.py` before each build.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import generated_pages  # noqa: E402

project = "Triptych"
author = copyright = "The Triptych developers"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build", "_static", "examples", "**.ipynb_checkpoints"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "notebooks")
nb_execution_timeout = 600
nb_execution_raise_on_error = True

html_theme = "furo"
html_title = "Triptych"
html_static_path = ["_static"]
html_css_files = ["docstrings.css"]
html_show_sphinx = html_copy_source = False
templates_path: list[str] = []

autodoc_mock_imports = ["triton"]  # comes with torch for CUDA alone
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
add_module_names = False
# two modules may have one name, and pages may start at other levels
suppress_warnings = ["ref.python", "myst.header"]


def setup(app):
    generated_pages.write(HERE)
    app.connect("autodoc-process-docstring", generated_pages.plain_docstring)
