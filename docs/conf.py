"""How Sphinx builds the pages of fedpriv: `make docs`, without a network, warnings as errors."""

import logging
import os
import sys
from pathlib import Path

import fedpriv
from fedpriv.runtime import outside

HERE = Path(__file__).parent
sys.path.append(str(HERE / "_ext"))

project = "fedpriv"
author = "The fedpriv developers"
version = release = fedpriv.__version__
project_copyright = author

extensions = [
    "api",
    "generated",
    "myst_nb",
    "offline",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "README.md", "inventories", "_ext", "_generated", "_kernel"]
templates_path: list[str] = []
nitpicky = True

# A reader of the reference needs the type of a setting, not the mark that it reaches outside.
outside.PathSetting = outside.OutputSetting = str | Path
outside.PathText = outside.ServiceSetting = str

default_role = "code"  # docstrings write `names` like this
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
napoleon_use_ivar = True
add_module_names = False

# Markdown by MyST. Each heading down to the third level has an anchor to link to.
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3

# A notebook is executed when it changed since the last build, and an error in it ends the build.
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_execution_in_temp = True
# On a fresh machine matplotlib writes to stderr that it reads the fonts. Errors end the build.
nb_output_stderr = "remove"
# The kernel is this Python, whichever kernels the user has installed. It says nothing but errors.
os.environ["JUPYTER_PATH"] = str(HERE / "_kernel")
logging.getLogger("traitlets").setLevel(logging.WARNING)

# The button copies the commands of a block of console, without prompts and output.
copybutton_prompt_text = "$ "

# Inventories are in the repository, so that a build asks nobody; inventories/README.md says whence.
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", "inventories/python.inv"),
    "pillow": ("https://pillow.readthedocs.io/en/stable", "inventories/pillow.inv"),
}

html_theme = "furo"
html_title = f"fedpriv {version}"
html_static_path = ["_static"]
html_css_files = ["fedpriv.css"]
html_copy_source = False
html_show_sphinx = False
