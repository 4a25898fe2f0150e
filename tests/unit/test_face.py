"""What `import fedpriv` gives, and that it is quick to give it."""

import subprocess
import sys

import fedpriv


def test_every_name_of_the_face_can_be_had():
    assert len(fedpriv.__all__) > 40
    for name in fedpriv.__all__:
        found = getattr(fedpriv, name)
        assert isinstance(found, int) or found.__module__.startswith("fedpriv")


def test_importing_the_face_brings_nothing_heavy():
    heavy = "'torch', 'transformers', 'flwr', 'ray', 'hydra', 'matplotlib', 'scipy'"
    code = f"import sys, fedpriv; print(sorted(set(sys.modules) & {{{heavy}}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
