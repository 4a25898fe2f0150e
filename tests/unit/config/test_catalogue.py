"""Experiments and choices are found by their files, the user's before fedpriv's."""

from fedpriv.config import catalogue


def test_a_file_of_the_users_takes_precedence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ours = tmp_path / "experiments"
    (ours / "strategy").mkdir(parents=True)
    (ours / "quickstart.yaml").write_text("# Mine\nname: mine\n")
    (ours / "strategy" / "fedavg.yaml").write_text(
        "# @package _global_\n# Mine too\nclient: null\n"
    )

    assert catalogue.experiments()["quickstart"] == ours / "quickstart.yaml"
    assert "sroie_kie" in catalogue.experiments()
    assert catalogue.groups()["strategy"]["fedavg"] == ours / "strategy" / "fedavg.yaml"
    assert "feam_dp" in catalogue.groups()["strategy"]


def test_sweeps_are_tables_of_papers_and_what_they_share_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "experiments" / "papers" / "mine"
    mine.mkdir(parents=True)
    for name in ("table_1", "_shared"):
        (mine / f"{name}.yaml").write_text("# Mine\n")
    assert {"papers/mine/table_1", "papers/cdmi/table_5"} < set(catalogue.sweeps())
    assert not [name for name in catalogue.sweeps() if "_shared" in name]
    assert "papers" not in catalogue.groups()


def test_the_headline_is_the_first_comment(tmp_path):
    path = tmp_path / "mine.yaml"
    for text, headline in [
        ("# What it is\n# and more\nname: x\n", "What it is"),
        ("# @package _global_\n# What it is\n", "What it is"),
        ("name: x\n", ""),
    ]:
        path.write_text(text)
        assert catalogue.headline(path) == headline


def test_every_file_of_ours_has_a_headline():
    choices = [path for group in catalogue.groups().values() for path in group.values()]
    for path in [*catalogue.experiments().values(), *catalogue.sweeps().values(), *choices]:
        assert catalogue.headline(path), path
