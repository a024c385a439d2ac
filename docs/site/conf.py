"""How the documentation site is built: `make docs`.

The sources are the Markdown pages of the repository as they are, so its root is the source folder; pages that only the
site needs (its front page, its sections, the reference) are beside this file.
"""

import importlib
import inspect
import os
import pkgutil
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import undertow

ROOT = Path(__file__).parents[2]
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing LiteLLM asks the network for prices
PUBLIC = [  # modules whose public names are all in the reference
    "undertow",
    "undertow.adapters.coba",
    "undertow.adapters.litellm",
    "undertow.adapters.optuna",
    "undertow.adapters.river",
    "undertow.compiled",
    "undertow.contenders",
    "undertow.contracts",
    "undertow.errors",
    "undertow.gym",
    "undertow.identify",
    "undertow.kalman",
    "undertow.live",
    "undertow.policies",
    "undertow.problems.datasets",
    "undertow.problems.environments",
    "undertow.problems.worlds",
    "undertow.replay",
    "undertow.ridge",
    "undertow.serve",
    "undertow.simulation",
    "undertow.system",
    "undertow.theory",
    "undertow.trajectory",
    "undertow.tuner",
    "undertow.window",
]

project = "undertow"
copyright = "the undertow developers"
version = release = undertow.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
root_doc = "docs/site/index"
include_patterns = [
    "docs/**",
    "benchmarks/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
exclude_patterns = [".*", "out", "docs/site/templates"]
templates_path = ["templates"]
default_role = "literal"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autosummary_generate = False
autodoc_default_options = {"show-inheritance": True, "no-value": True, "member-order": "bysource"}
autodoc_typehints = "both"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
napoleon_google_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]  # described, not indexed: many have the same name
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = f"undertow {release}"
html_static_path = ["static"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_css_files = ["site.css"]
html_additional_pages = {"index": "front.html"}  # leads from the folder to the front page
html_copy_source = False
html_sidebars: dict[str, list[str]] = {"docs/start": []}  # a section of one page
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True


class CommandHelp(SphinxDirective):
    """The help of every command, as `undertow COMMAND --help` prints it."""

    def run(self) -> list[nodes.Node]:
        """Return one section for each command."""
        from typer.main import get_group
        from typer.testing import CliRunner

        from undertow.cli import app

        app.rich_markup_mode = None  # no frames
        sections: list[nodes.Node] = []
        for name in get_group(app).commands:
            printed = CliRunner().invoke(app, [name, "--help"], prog_name="undertow", env={"COLUMNS": "88"}).output
            section = nodes.section(ids=[f"undertow-{name}"], names=[name])
            section += [nodes.title(text=f"undertow {name}"), nodes.literal_block(text=printed, language="text")]
            sections.append(section)
        return sections


def escape(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Let docstrings be read as text: |β| is no substitution, and an index may follow what is bold or code."""
    for place, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            words = re.split(r"(`[^`]*`)", line)
            words[::2] = [part.replace("|", r"\|") for part in words[::2]]
            lines[place] = re.sub(r"(`[^`]+`|\*\*[^*]+\*\*)(?=[^\s`.,:;!?)\]…])", r"\1\\ ", "".join(words))


def keep_whole(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep the docstring of a property whole: napoleon takes what is before a colon in its first line for a type."""
    if what == "property":
        lines[:0] = ["..", ""]  # a comment without a colon


def show_programs(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Show what is indented in the docstring of a module as it is: programs and formulas."""
    if what == "module":
        text = "\n".join(lines)
        lines[:] = re.sub(r"(?<=\n\n)(?=    \S)", "::\n\n", text, count=1).split("\n")


def skip(app: Sphinx, what: str, name: str, obj: object, skipped: bool, options: object) -> bool | None:
    """Leave out the fields of a NamedTuple, which its docstring describes."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def check_names(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public names that the reference leaves out; a name may be there as that of another module."""
    names = {name for name, _, _, _, _, _ in env.get_domain("py").get_objects()}
    shown = {id(_resolved(name)) for name in names}
    for module in map(importlib.import_module, PUBLIC):
        for name in module.__all__:
            value, full = getattr(module, name), f"{module.__name__}.{name}"
            if not (full in names or id(value) in shown or inspect.ismodule(value)):
                logging.getLogger(__name__).warning(f"{full} is not in the reference")


def _resolved(name: str) -> object:
    """Return what a documented name stands for; None for what only instances have."""
    try:
        return pkgutil.resolve_name(name)
    except AttributeError:
        return None


def setup(app: Sphinx) -> None:
    """Add what is ours."""
    app.add_directive("command-help", CommandHelp)
    app.connect("autodoc-process-docstring", escape, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", keep_whole, priority=200)
    app.connect("autodoc-process-docstring", show_programs, priority=200)
    app.connect("autodoc-skip-member", skip)
    app.connect("env-check-consistency", check_names)
