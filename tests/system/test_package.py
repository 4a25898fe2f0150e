"""What pip installs is one name, and folders of a user's with names like ours break nothing."""

import email
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import fedpriv

ROOT = Path(__file__).parents[2]
OURS = ("strategies", "clients", "attacks", "experiments")
SMALL = (
    "rounds=1",
    "data.source.documents_per_provider=3",
    "model.image=false",
    "keep=[transcript,held_out]",
    "+attack=server_membership",
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of an sdist, and of a wheel that was built from it."""
    place = tmp_path_factory.mktemp("package")
    away = shutil.ignore_patterns(".*venv*", ".git", ".*_cache", "runs", "__pycache__", "dist")
    shutil.copytree(ROOT, place / "source", symlinks=True, ignore=away)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", place / "dist"]
    done = subprocess.run([*command, place / "source"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return place / "dist"


def test_the_wheel_holds_one_name_and_every_module_once(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"fedpriv"}
    assert len(names) == len(set(names))
    for folder in ("fedpriv", *OURS):
        for path in (ROOT / folder).rglob("*"):
            inside = path.relative_to(ROOT / "fedpriv" if folder == "fedpriv" else ROOT)
            linked = any(parent.is_symlink() for parent in (path, *path.parents))
            if path.is_file() and path.suffix != ".pyc" and not linked:
                assert f"fedpriv/{inside}" in names


def test_the_metadata_name_version_licences_and_readme(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        info = f"fedpriv-{fedpriv.__version__}.dist-info"
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        licences = {name for name in archive.namelist() if name.startswith(f"{info}/licenses/")}
    assert metadata["Version"] == fedpriv.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert licences == {f"{info}/licenses/{name}" for name in metadata.get_all("License-File")}
    assert {"LICENSE", "NOTICE"} <= set(metadata.get_all("License-File"))
    assert metadata.get_payload().startswith("# fedpriv")


def test_it_runs_beside_folders_of_the_users_with_the_same_names(built, tmp_path):
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    # What fedpriv depends on comes from here; a .pth file inside is not read, so fedpriv does not.
    theirs = subprocess.run(
        [venv / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    (Path(theirs) / "here.pth").write_text(sysconfig.get_path("purelib"))

    user = tmp_path / "user"
    for name in OURS[:3]:
        (user / name).mkdir(parents=True)
        (user / name / "__init__.py").write_text(f"raise ImportError('{name} of the user')\n")
    (user / "attacks" / "__init__.py").write_text("mine = True\n")
    plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment = {**plain, "FEDPRIV_CACHE": str(tmp_path / "cache")}

    command = [venv / "bin" / "fedpriv", "run", "quickstart", *SMALL]
    done = subprocess.run(command, cwd=user, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    run_dir = user / done.stdout.splitlines()[-1]
    assert (run_dir / "findings/server_membership/result.json").is_file()
    assert "server_membership" in (run_dir / "report.html").read_text()

    script = "import attacks, fedpriv.attacks as ours; print(attacks.mine, ours.__file__)"
    done = subprocess.run(
        [venv / "bin" / "python", "-c", script],
        cwd=user, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(f"True {theirs}/fedpriv/attacks/")
