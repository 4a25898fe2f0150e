"""What is read or written in a run folder stays in it, and is its owner's only."""

import os
import stat

import pytest

from fedpriv.runtime import run_files
from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.run_folder import RunFolder

SECRET = b"another file of the user's"


@pytest.fixture
def outside(tmp_path):
    path = tmp_path / "outside"
    path.mkdir()
    (path / "file").write_bytes(SECRET)
    return path


@pytest.fixture
def root(tmp_path):
    return RunFolder.made(tmp_path / "run").path


def test_a_file_comes_back_through_a_link_to_the_folder_itself(root, tmp_path):
    run_files.write(root, "deep/er/file", b"x")
    (tmp_path / "link").symlink_to(root)
    assert run_files.read(tmp_path / "link", "deep/er/file") == b"x"
    assert run_files.read(root, "deep/nothing") is None


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../outside/file", "a/../../outside/file", "", "\0"]
)
def test_no_name_leads_out(root, outside, name):
    for use in (
        lambda: run_files.read(root, name),
        lambda: run_files.write(root, name, b"x"),
        lambda: run_files.append(root, name, b"x"),
        lambda: run_files.make_folder(root, name or ".."),
    ):
        with pytest.raises(Damaged, match="the file name"):
            use()
    assert (outside / "file").read_bytes() == SECRET


def test_a_link_is_neither_read_nor_written(root, outside):
    (root / "file").symlink_to(outside / "file")
    (root / "folder").symlink_to(outside)
    for name in ("file", "folder/file"):
        with pytest.raises(Damaged, match=r"is a symbolic link, which is not followed"):
            run_files.read(root, name)
    with pytest.raises(Damaged, match="no regular file"):
        run_files.append(root, "file", b"x")
    for use in (run_files.write, run_files.append):
        with pytest.raises(Damaged, match="symbolic link"):
            use(root, "folder/file", b"x")
    with pytest.raises(Damaged, match="symbolic link"):
        run_files.names(root, "folder")
    run_files.write(root, "file", b"mine")  # takes the link's place
    assert (outside / "file").read_bytes() == SECRET
    assert sorted(os.listdir(outside)) == ["file"]
    assert run_files.read(root, "file") == b"mine"


def test_a_pipe_or_a_folder_in_a_files_place_is_an_error_and_not_waited_for(root):
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(Damaged, match="no regular file"):
            run_files.read(root, name)
    with pytest.raises(Damaged, match="no regular file"):
        run_files.append(root, "pipe", b"x")


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_whatever_the_umask_only_the_owner_can_read(tmp_path, umask):
    before = os.umask(umask)
    try:
        root = tmp_path / "run"
        run_files.make_root(root)
        run_files.write(root, "truth/round-000001/file", b"x")
        run_files.append(root, "failures.jsonl", b"x")
    finally:
        os.umask(before)
    made = [root, *root.rglob("*")]
    modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in made}
    assert modes == {True: 0o700, False: 0o600}
    assert len(made) == 5


def test_a_folder_that_others_can_read_keeps_its_mode_when_a_run_is_made_in_it_and_that_is_told(
    tmp_path,
):
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o755)
    with pytest.warns(UserWarning, match=r"can look into .*run \(mode 755\).*`chmod 700 "):
        RunFolder.made(tmp_path / "run").write("a.txt", b"")
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "run/a.txt").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["../../../x", "..", ".", "", "/abs", "a/b"])
def test_a_run_of_such_a_name_is_not_made(tmp_path, name):
    with pytest.raises(ValueError, match="expected the name of a folder"):
        RunFolder.create(tmp_path / "runs", name)
    assert list(tmp_path.iterdir()) == []
