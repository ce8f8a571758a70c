"""Sphinx builds the documentation from this folder: `make docs`.

Warnings are errors there, so a link or a picture that leads nowhere stops the build. The pages
load nothing from other machines: formulas are MathML, which browsers draw themselves. The ledger,
the glossary and the API pages are written by `generated_pages.py` before each build.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import generated_pages  # noqa: E402
import page_parts  # noqa: E402

project = "Triptych"
author = copyright = "The Triptych developers"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build", "_static", "examples", "**.ipynb_checkpoints"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_dmath_allow_space = False  # "$ref by $id" is no formula
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "notebooks")
nb_execution_timeout = 600
nb_execution_raise_on_error = True

html_theme = "furo"
html_title = "Triptych"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = "_static/logo.svg"
html_math_renderer = "mathml"
html_show_sphinx = html_copy_source = False
templates_path: list[str] = []

autodoc_mock_imports = ["starlette", "triton", "uvicorn"]  # of extras, and of CUDA
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False  # those of torch are written otherwise
autodoc_typehints = "signature"
python_maximum_signature_line_length = 80
add_module_names = False
# two modules may have one name, and pages may start at other levels
suppress_warnings = ["ref.python", "myst.header"]


def setup(app):
    generated_pages.write(HERE)
    app.connect("autodoc-process-docstring", generated_pages.write_out)
    app.connect("autodoc-process-signature", generated_pages.shorten)
    app.connect("autodoc-skip-member", generated_pages.leave_out)
    app.add_html_math_renderer(
        "mathml", (page_parts.formula, None), (page_parts.displayed_formula, None)
    )
    app.connect("source-read", page_parts.brackets_are_no_links)
    app.add_post_transform(page_parts.Panels)
