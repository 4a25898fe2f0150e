"""Where a measured number comes from."""

import subprocess

import fedpriv
from fedpriv.runtime import versions


def test_the_commit_is_that_of_the_repository_and_tells_changes(tmp_path, monkeypatch):
    package = tmp_path / "fedpriv"
    package.mkdir()
    file = package / "__init__.py"
    file.write_text("")
    monkeypatch.setattr(fedpriv, "__file__", str(file))
    commit = versions.commit.__wrapped__
    assert commit() == f"fedpriv {fedpriv.__version__}"  # as installed

    def git(*words):
        command = ["git", "-C", tmp_path, "-c", "user.name=n", "-c", "user.email=e", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    assert commit() == f"fedpriv {fedpriv.__version__}"  # nothing is committed yet
    git("add", ".")
    git("commit", "-qm", "x")
    assert git("rev-parse", "HEAD").startswith(commit())
    assert len(commit()) == 10
    (tmp_path / "notes").write_text("a file that git does not know changes nothing")
    assert len(commit()) == 10
    file.write_text("changed = True")
    assert commit() == git("rev-parse", "--short=10", "HEAD") + " with changes"


def test_a_missing_package_has_no_version_and_fedpriv_always_has_one(monkeypatch):
    def missing(name):
        raise versions.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(versions.importlib.metadata, "version", missing)
    versions._version.cache_clear()
    assert versions.versions_of("fedpriv", "torch") == {"fedpriv": fedpriv.__version__}
    versions._version.cache_clear()


def test_the_code_of_a_process_is_that_with_which_it_began(tmp_path, monkeypatch):
    package = tmp_path / "fedpriv"
    package.mkdir()
    (package / "__init__.py").write_text("")
    began = versions.code(), versions.commit()
    monkeypatch.setattr(fedpriv, "__file__", str(package / "__init__.py"))
    assert (versions.code(), versions.commit()) == began
    assert versions.code.__wrapped__() != began[0]
