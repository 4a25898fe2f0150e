"""A resumed run goes on with the data that it was begun with, or says what differs."""

import dataclasses
import json
import os
import shutil

import pytest
from experiments_run import ran
from folder_pages import OURS, picture, save

from fedpriv.cli.main import main
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.digests import document_digest
from fedpriv.data.document import Document
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import ByProvider, Iid
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.federation.same_data import OtherData
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.report.tables import RunFolder
from fedpriv.strategies.fedavg import FedAvg

COMPANIES = ("Acme", "Globex", "Initech", "Umbrella", "Zeta", "Hooli")
SETTINGS = (
    *("data=folder", "data.source.root=scans", "data.partition.clients=2", "masking=off"),
    *("data.test.unseen=0", "rounds=1", "federation.report=false", "strategy=fedavg"),
)


def scans(root, companies=COMPANIES, total="12.50"):
    for number, company in enumerate(companies):
        save(picture((company, total)), root / f"d{number}.png")
        words = [dict(word) for word in OURS["words"]]
        words[0]["text"], words[2]["text"] = company, total
        (root / f"d{number}.json").write_text(json.dumps({**OURS, "words": words}))
    labels(root, {f"d{number}.png": company for number, company in enumerate(companies)}, total)


def labels(root, companies, total="12.50"):
    rows = [f"{name},{company},{company},{total}" for name, company in companies.items()]
    (root / "labels.csv").write_text("\n".join(["file,provider,company,total", *rows]))


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A folder of documents, and a run of one round on it."""
    here = tmp_path_factory.mktemp("begun")
    scans(here / "scans")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        status, _, said = ran("run", "kie_layoutlmv3", *SETTINGS, f"runs={here}/runs")
    assert status == 0, said
    return here


@pytest.fixture
def here(begun, tmp_path, monkeypatch):
    """A copy of both, whose settings name the copy."""
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_in(place):
    return RunFolder(next((place / "runs/kie_layoutlmv3").iterdir()))


def resumed(place, *more):
    arguments = ("rounds=2", f"data.source.root={place}/scans", "federation.device=cpu")
    return main(["resume", str(run_in(place).path), *arguments, *more])


def page_more(root):
    scans(root, (*COMPANIES, "Soylent"))


def page_less(root):
    (root / "d5.png").unlink()
    (root / "d5.json").unlink()
    labels(root, {f"d{number}.png": one for number, one in enumerate(COMPANIES[:5])})


def other_word(root):
    words = json.loads((root / "d2.json").read_text())
    words["words"][1]["text"] = "Inc"
    (root / "d2.json").write_text(json.dumps(words))


def other_picture(root):
    page = picture(("Initech", "12.50"))
    page.putpixel((5, 5), (1, 2, 3))
    save(page, root / "d2.png")


def other_provider(root):
    named = {f"d{number}.png": one for number, one in enumerate(COMPANIES)}
    labels(root, {**named, "d2.png": "Wayne"})


CHANGES = {
    page_more: "1 new (d6.png)",
    page_less: "1 gone (d5.png)",
    other_word: "1 changed (d2.png)",
    other_picture: "1 changed (d2.png)",
    other_provider: "1 changed (d2.png)",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_run_does_not_go_on_with_other_data_unless_told_to(here, capsys, change):
    change(here / "scans")
    before = run_in(here).read_json("partition.json")
    files = {one: one.read_bytes() for one in run_in(here).path.rglob("*") if one.is_file()}
    assert resumed(here) == 2
    said = capsys.readouterr().err
    assert f"the data are not those that it was run on before: {CHANGES[change]}." in said
    assert "--other-data" in said
    assert {one: one.read_bytes() for one in files} == files
    assert resumed(here, "--other-data") == 0
    now = run_in(here).read_json("partition.json")
    (earlier,) = now.pop("earlier")
    assert earlier == {"to_round": 1, **before}
    assert main(["verify", str(run_in(here).path)]) == 0


def test_documents_that_were_moved_are_the_same(here, capsys, monkeypatch):
    shutil.move(here / "scans", here / "elsewhere")
    assert resumed(here) == 2
    assert "data.source.root=NEW_PLACE" in capsys.readouterr().err
    again = ["rounds=2", "data.source.root=elsewhere"]  # as it is typed from here
    assert main(["resume", str(run_in(here).path), *again]) == 0
    assert run_in(here).config()["data"]["source"]["root"] == str(here / "elsewhere")
    monkeypatch.chdir("/")
    assert main(["resume", str(run_in(here).path), "rounds=3"]) == 0


def test_the_same_documents_in_other_hands_are_other_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run_of(partition, resume, **more):
        data = DocumentData(Invoices(providers=6, documents_per_provider=2), partition)
        run = Federation(model=layoutlmv3, data=data, strategy=FedAvg(), client=LocalTraining())
        return run.run(1 + resume, run_dir="here", resume=resume, **more)

    run_of(ByProvider(clients=3), False)
    with pytest.raises(OtherData, match=r"before: \d+ in other hands \("):
        run_of(Iid(clients=3), True)
    run_of(Iid(clients=3), True, other_data=True)
    told = RunFolder(tmp_path / "here").read_json("partition.json")
    assert told["method"].startswith("Iid")
    assert told["earlier"][0]["method"].startswith("ByProvider")


def test_a_file_that_was_copied_or_touched_is_the_same_and_other_pixels_are_not(tmp_path):
    save(picture(), tmp_path / "a.png")
    page = Document("a", "p", tmp_path / "a.png", (300, 200), ())
    before = document_digest(page, here=False)
    shutil.copy(tmp_path / "a.png", tmp_path / "b.png")
    os.utime(tmp_path / "a.png")
    moved = dataclasses.replace(page, page=tmp_path / "b.png")
    assert document_digest(page, here=False) == document_digest(moved, here=False) == before
    times = os.stat(tmp_path / "b.png")
    save(picture(("ACME Ltd", "Date 03/02/2024", "Total 99.50")), tmp_path / "b.png")
    os.utime(tmp_path / "b.png", ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    assert document_digest(moved, here=False) != before


def test_a_relative_path_means_the_same_from_everywhere(begun, tmp_path, monkeypatch):
    """Of a public bug report: the folder of that name, from where the run was resumed."""
    scans(tmp_path / "scans", COMPANIES[::-1])
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run_in(begun).path, tmp_path / "run")
    assert main(["resume", "run", "rounds=2"]) == 0
    told = RunFolder(tmp_path / "run").partition
    assert set(told["provider"]) == set(COMPANIES)
    assert set(told["document"][told["provider"] == "Acme"]) == {"d0.png"}


def test_without_its_digests_nobody_can_tell(here, capsys):
    run_in(here).remove("data.json")
    assert resumed(here) == 2
    assert "data.json is not there, and whether the data are the same" in capsys.readouterr().err
    assert resumed(here, "--other-data") == 0
