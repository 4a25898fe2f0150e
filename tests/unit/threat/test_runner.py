"""The runner: what an attack is granted, what comes out, and that none reaches the truth."""

import dataclasses
import gc
import json
import shutil
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch
from attacked import attacked

from fedpriv.attacks.closed_form import ClosedForm
from fedpriv.attacks.inversion.attack import GradientInversion
from fedpriv.attacks.inversion.presets import gi_dqa, gi_dqa_tuned, random, template_only
from fedpriv.attacks.inversion.safe_template import SafeTemplate
from fedpriv.attacks.text.attack import TextRecovery
from fedpriv.attacks.victim import MessageAccess, each, messages
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fedsgd import BatchGradient
from fedpriv.data.generated.slips import Slips
from fedpriv.data.partition import HoldOut, Iid
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.federation.secagg.masking import Masking
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fedsgd import FedSGD
from fedpriv.threat.access import Architecture, BatchKnowledge, BlackBox, Transcript
from fedpriv.threat.attack import AttackContext, NotApplicable, NotGranted, told_once
from fedpriv.threat.claims import RecoveredBatch
from fedpriv.threat.runner import run_attack_on
from fedpriv.threat.settings import AttackSettings, at_least
from fedpriv.threat.surfaces import transcript
from fedpriv.threat.surfaces.base import SERVER, Surface, observer, wanted
from fedpriv.threat.surfaces.batches import Assumed, load_known
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.threat.truth import TruthStore
from fedpriv.training.adapters import FineTuned, LoRA, TopLayers
from fedpriv.training.loops import Optimizer

SMALL = partial(layoutlmv3, task="answers", size="small", image_size=64, layers=1)
NARROW = partial(layoutlmv3, task="answers", hidden_size=64, image_size=64, layers=1)


def run(folder, clients=2, masking=None, keep=(KeepTranscript(),), model=SMALL, **client):  # noqa: B008
    documents = Slips((64, 64), providers=clients, documents_per_provider=2, questions=("total",))
    federation = Federation(
        model=model,
        data=DocumentData(documents, Iid(clients), HoldOut(fraction=0), cache="off"),
        strategy=FedSGD(),
        client=BatchGradient(**client),
        keep=keep,
        masking=masking,
        runs=folder,
    )
    return federation.run(1).run_dir


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Returns a run folder with a transcript; tests that write take a copy."""
    return run(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    return run(tmp_path_factory.mktemp("masked"), masking=Masking(bound=100.0))


@pytest.fixture
def folder(seen, tmp_path):
    return shutil.copytree(seen, tmp_path / "run")


def attack_of(folder, attack, name, log, **settings):
    return run_attack_on(folder, attack, SMALL, name=name, settings=settings, log=log.append)


def found(folder, name):
    return json.loads((folder / "findings" / name / "result.json").read_text("utf-8"))


def test_the_closed_form_leaves_numbers_and_pictures(folder):
    metrics = attacked(folder, ClosedForm(), SMALL, "closed_form")
    assert metrics["psnr_roi"] > 70
    assert metrics["psnr_roi"] > metrics["template_psnr_roi"] + 50
    assert metrics["messages"] == 2
    assert {"psnr_page", "fft_distance", "mse", "exact_match", "fuzz_ratio", "ocr_ceiling",
            "evaluations", "seconds"} <= set(metrics)  # fmt: skip
    written = found(folder, "closed_form")
    assert written["status"] == "done"
    assert [m["client"] for m in written["details"]["by_message"]] == [0, 1]
    pictures = sorted(p.name for p in (folder / "findings/closed_form").glob("*.png"))
    assert "round-1-client-0-page-0-reconstruction.png" in pictures
    assert not [name for name in pictures if "original" in name or "difference" in name]


def test_originals_are_shown_only_where_the_user_allows_it(folder):
    attacked(folder, ClosedForm(), SMALL, "closed_form", originals=True)
    pictures = [p.name for p in (folder / "findings/closed_form").glob("round-1-client-0*.png")]
    kinds = {name.rpartition("-")[2] for name in pictures}
    assert kinds == {"original.png", "template.png", "reconstruction.png", "difference.png"}


def test_the_text_is_read_without_being_given(folder):
    metrics = attacked(folder, TextRecovery(), SMALL, "text")
    assert metrics["token_recall"] == metrics["exact_position"] == 1
    assert metrics["question_exact"] == metrics["answer_exact"] == metrics["private_text"] == 1
    assert metrics["psnr_page"] is None
    texts = json.loads((folder / "findings/text/text.json").read_text("utf-8"))
    assert texts["round-1-client-0"]["answer"]


def test_pages_are_sought_with_the_text_that_was_read(folder):
    inversion = GradientInversion(gi_dqa_tuned(5))
    metrics = attacked(folder, inversion, SMALL, "tuned", clients=(0,))
    given = attacked(folder, inversion, SMALL, "given", clients=(0,), assume=Assumed(text="given"))
    assert metrics["psnr_roi"] == pytest.approx(given["psnr_roi"], abs=1e-6)
    assert metrics["evaluations"] == 5
    assert json.loads((folder / "findings/tuned/curve.json").read_text())["round-1-client-0"]


def test_the_template_is_its_own_score(folder):
    alone = attacked(folder, GradientInversion(template_only()), SMALL, "template_only")
    assert alone["psnr_roi"] == pytest.approx(alone["template_psnr_roi"])
    noise = attacked(folder, GradientInversion(random()), SMALL, "random")
    assert noise["psnr_roi"] < alone["psnr_roi"] + 3
    assert alone["evaluations"] == noise["evaluations"] == 0


# The truth


@dataclass(frozen=True)
class SpyAccess:
    view: Transcript
    knowledge: BatchKnowledge
    architecture: Architecture


@dataclass(frozen=True)
class Spy:
    """Keeps what an attack is handed."""

    handed: ClassVar[list] = []

    def run(self, access: SpyAccess, context: AttackContext) -> tuple[RecoveredBatch, ...]:
        self.handed.append((access, context))
        return ()


def reachable(roots):
    """Returns every object that can be reached from these, without modules and classes."""
    found, todo = {}, list(roots)
    while todo:
        one = todo.pop()
        if id(one) in found or isinstance(one, type) or type(one).__name__ == "module":
            continue
        found[id(one)] = one
        if callable(one) and not hasattr(one, "__dataclass_fields__"):
            # A function refers to all globals; what counts is what it closes over.
            todo += [c.cell_contents for c in getattr(one, "__closure__", None) or ()]
            todo += [*getattr(one, "args", ()), *getattr(one, "keywords", {}).values()]
            todo.append(getattr(one, "__self__", None))
            continue
        todo += gc.get_referents(one)
    return found.values()


def test_no_attack_is_handed_the_truth(folder):
    Spy.handed.clear()
    attacked(folder, Spy(), SMALL, "spy")
    truth = TruthStore(RunFolder.existing(folder)).of((1, 0))
    objects = list(reachable(Spy.handed[0]))
    assert len(objects) > 100
    assert not [o for o in objects if isinstance(o, TruthStore | RunFolder)]
    assert not [o for o in objects if isinstance(o, str) and str(folder) in o]
    arrays = [o for o in objects if isinstance(o, np.ndarray | torch.Tensor)]
    pixels = truth.pixels.tobytes()
    held = [np.asarray(a.detach() if isinstance(a, torch.Tensor) else a).tobytes() for a in arrays]
    assert any(len(bytes_) == len(pixels) for bytes_ in held)  # the template is among them
    assert pixels not in held
    assert not [o for o in objects if isinstance(o, str) and truth.answers[0] == o]


def test_findings_do_not_depend_on_the_truth(folder):
    with_truth = attacked(folder, ClosedForm(), SMALL, "closed_form")
    before = {p.name: p.read_bytes() for p in (folder / "findings/closed_form").glob("*.png")}
    shutil.rmtree(folder / "truth")
    without = attacked(folder, ClosedForm(), SMALL, "closed_form")
    after = {p.name: p.read_bytes() for p in (folder / "findings/closed_form").glob("*.png")}
    assert before == after
    assert with_truth["status"] == "done"
    assert without["status"] == "not scored: the simulation kept no truth"
    assert "psnr_roi" not in without


def test_text_is_handed_over_only_where_it_is_assumed(folder):
    run_folder = RunFolder.existing(folder)
    assert load_known(run_folder, (1, 0), Assumed()).text is None
    truth = TruthStore(run_folder).of((1, 0)).columns
    texts = {
        name: load_known(run_folder, (1, 0), Assumed(text=name)).text
        for name in ("given", "question", "answer", "random")
    }
    assert all(np.array_equal(texts["given"][name], truth[name]) for name in truth)
    prompt = slice(0, int((truth["word"][0] >= 0).argmax()))  # up to the first word of the page
    assert np.array_equal(texts["question"]["input_ids"][:, prompt], truth["input_ids"][:, prompt])
    assert not np.array_equal(texts["answer"]["input_ids"], truth["input_ids"])
    assert not np.array_equal(texts["random"]["input_ids"], truth["input_ids"])
    nothing = load_known(run_folder, (1, 0), Assumed(template=False))
    assert nothing.template is None
    assert nothing.private is None


def test_the_template_hides_all_private_pixels(folder):
    run_folder = RunFolder.existing(folder)
    known, truth = load_known(run_folder, (1, 0), Assumed()), TruthStore(run_folder).of((1, 0))
    changed = (known.template != truth.pixels).any(1, keepdims=True)
    assert changed.any()
    assert not (changed & ~known.private).any()
    assert {field.key for field in truth.fields[0]} >= {"total", "date"}
    for field in truth.fields[0]:
        left, top, right, bottom = field.box
        inside = known.template[0, :, top:bottom, left:right]
        assert inside.std() < 12  # blank
        assert truth.pixels[0, :, top:bottom, left:right].std() > 25  # ink


# What is not granted


def test_what_is_not_granted_is_recorded_and_not_run(masked, tmp_path):
    folder = shutil.copytree(masked, tmp_path / "run")
    result = attacked(folder, ClosedForm(), SMALL, "greedy")
    assert found(folder, "greedy")["headline"] == result["headline"]
    assert result["status"] == "not granted"
    assert result["headline"] == (
        "not granted, because the attack requires each client's update, and updates are masked; "
        "granted by attack.target=aggregate, if the attack supports it"
    )


def test_all_that_is_missing_is_told_at_once(folder):
    Spy.handed.clear()
    shutil.rmtree(folder / "transcript")
    result = attacked(folder, Spy(), SMALL, "spy")
    assert result["status"] == "not granted"
    assert "Transcript: the run kept nothing" in result["headline"]
    assert "BatchKnowledge: the run kept nothing" in result["headline"]
    assert "granted by keep=transcript" in result["headline"]
    assert result["threat_model"] == {
        "Transcript": False, "BatchKnowledge": False, "Architecture": False
    }  # fmt: skip
    assert not Spy.handed


def test_a_setting_that_the_attack_has_no_use_for_is_refused(folder):
    told = r"known=0\.3: nothing that this attack uses depends on it; it takes assume, clients"
    with pytest.raises(ValueError, match=told):
        attacked(folder, ClosedForm(), SMALL, known=0.3)


@dataclass(frozen=True, kw_only=True)
class CurveSettings(AttackSettings):
    lines: int = 1

    def __post_init__(self):
        super().__post_init__()
        at_least(1, lines=self.lines)


@dataclass(frozen=True)
class Curve(Surface, observer=SERVER, takes=CurveSettings):
    """The metrics of a run: a surface of one's own."""

    rows: tuple[str, ...]

    @classmethod
    def granted(cls, run):
        rows = run.folder.records("metrics.jsonl")
        if not rows:
            raise NotGranted("the run has no metrics", "a round")
        shown = tuple(map(str, rows[: run.settings.of(CurveSettings).lines]))
        return Curve(shown), ("the metrics can be read",)


@dataclass(frozen=True)
class CurveAccess:
    curve: Curve


@dataclass(frozen=True)
class ReadsTheCurve:
    def run(self, access: CurveAccess, context: AttackContext) -> tuple[RecoveredBatch, ...]:
        context.remarks.details["read"] = len(access.curve.rows)
        return ()


def test_a_surface_of_ones_own_is_one_class(folder):
    found = attacked(folder, ReadsTheCurve(), SMALL, "own", lines=2)
    assert (found["read"], found["threat_model"]) == (1, {"Curve": True})
    assert found["assumptions"] == ("the metrics can be read",)
    assert found["settings"]["lines"] == "2"
    assert observer([Curve]).who == "the server"
    with pytest.raises(ValueError, match="lines=0: expected at least 1"):
        attacked(folder, ReadsTheCurve(), SMALL, "own", lines=0)
    with pytest.raises(ValueError, match="lines=2: nothing that this attack uses depends on it"):
        attacked(folder, ClosedForm(), SMALL, lines=2)
    (folder / "metrics.jsonl").unlink()
    refused = attacked(folder, ReadsTheCurve(), SMALL, "refused")
    assert refused["headline"] == (
        "not granted, because Curve: the run has no metrics; granted by a round"
    )


def test_a_surface_that_nothing_grants_is_named():
    class Nowhere(Surface):
        pass

    access = dataclasses.make_dataclass("Access", [("nowhere", Nowhere)])
    with pytest.raises(TypeError, match=r"Access.nowhere: .* a class method `granted`"):
        wanted(access)


@dataclass(frozen=True)
class Wavering:
    """Finds something, or says that there is nothing to find."""

    willing: bool

    def run(self, access: MessageAccess, context: AttackContext) -> tuple[RecoveredBatch, ...]:
        if not self.willing:
            raise NotApplicable("it does not want to")
        return tuple(RecoveredBatch(message.key) for message in access.view.messages)


def test_a_refused_attack_leaves_what_an_earlier_one_found(folder):
    log = []
    attacked(folder, ClosedForm(), SMALL, "steal")
    before = found(folder, "steal")
    refused = attack_of(folder, Wavering(willing=False), "steal", log)
    assert refused.headline == "not applicable: it does not want to"
    assert log == ["findings/steal keeps what an earlier attack found there"]
    assert found(folder, "steal") == before
    attack_of(folder, ClosedForm(), "steal", log, clients=(0,))
    assert log[1:] == [
        "findings/steal held a result of other settings, now replaced; name= keeps both"
    ]
    assert found(folder, "steal")["details"]["messages"] == 1
    attack_of(folder, ClosedForm(), "steal", log, clients=(0,))
    assert len(log) == 2, "the same again is no surprise"


@dataclass(frozen=True)
class AskingAccess:
    model: BlackBox


@dataclass(frozen=True)
class Asking:
    def run(self, access: AskingAccess, context: AttackContext) -> tuple[RecoveredBatch, ...]:
        return ()


def test_a_model_that_answers_nothing_cannot_be_asked_though_its_labels_are_unknown(tmp_path):
    tagger = partial(layoutlmv3, task="tags", image_size=64)
    federation = Federation(
        model=tagger,
        data=DocumentData(Slips((64, 64), providers=2), Iid(2), HoldOut(fraction=0), cache="off"),
        strategy=FedSGD(),
        client=BatchGradient(),
        runs=tmp_path,
    )
    place = federation.run(1).run_dir
    result = run_attack_on(place, Asking(), tagger, name="asking")
    assert result.status == "not applicable"
    assert "LayoutLMv3Tagger answers no questions: take model=vt5" in result.headline


def test_an_attack_without_a_claim_says_so(folder):
    result = attack_of(folder, Spy(), "spy", [])
    Spy.handed.clear()
    assert (result.status, result.headline) == (
        "nothing claimed", "the attack handed back no claim"
    )  # fmt: skip


def test_an_attack_that_does_not_say_what_it_may_use_is_refused(folder):
    class Silent:
        def run(self, access, context):
            return ()

    with pytest.raises(TypeError, match=r"Silent\.run does not say what it may use: annotate"):
        attacked(folder, Silent(), SMALL)


def test_a_claim_that_nothing_scores_is_refused(folder):
    @dataclass(frozen=True)
    class Odd(Spy):
        def run(self, access: SpyAccess, context: AttackContext) -> tuple[str, ...]:
            return ("the total is 12.50",)

    with pytest.raises(ValueError, match="handed back a str, which nothing scores: expected "):
        attacked(folder, Odd(), SMALL)


def test_a_masked_message_gives_nothing_and_the_sum_a_mixture(masked, tmp_path):
    folder = shutil.copytree(masked, tmp_path / "run")
    masked_page = attacked(folder, ClosedForm(target="masked"), SMALL, "masked")
    assert masked_page["psnr_roi"] < 12
    assert "the update is masked: it was read as if it were not (2 times)" in masked_page["notes"]
    assert masked_page["public"]
    refused = attacked(folder, ClosedForm(target="aggregate"), SMALL, "aggregate")
    assert refused["status"] == "not applicable"
    assert "2 examples are behind the message" in refused["headline"]
    assert refused["public"]
    sum_ = attacked(folder, ClosedForm(target="aggregate", most_examples=2), SMALL, "sum")
    assert sum_["psnr_roi"] < 30
    tokens = attacked(folder, TextRecovery(target="aggregate"), SMALL, "words")
    assert tokens["token_set_recall"] > 0.9  # masking hides whose words they are, not which


def test_who_colludes_is_no_victim(tmp_path):
    keep = [KeepTranscript(colluders=(1,))]
    behind = run(tmp_path / "masked", masking=Masking(bound=100.0), keep=keep)
    update = attacked(behind, ClosedForm(), SMALL, "update")
    assert update["status"] == "not granted"
    assert "and updates are masked; granted by attack.target=aggregate" in update["headline"]
    attacked(behind, ClosedForm(target="masked"), SMALL, "masked")
    in_the_open = run(tmp_path / "plain", keep=keep)
    attacked(in_the_open, ClosedForm(), SMALL, "update")
    # Without masks, nobody has anything to tell.
    for folder, name, victims in ((behind, "masked", [0]), (in_the_open, "update", [0, 1])):
        result = found(folder, name)
        assert [m["client"] for m in result["details"]["by_message"]] == victims
    # What is in a sum is known as before, a colluder's part too.
    tokens = attacked(behind, TextRecovery(target="aggregate"), SMALL, "words")
    assert tokens["token_set_recall"] > 0.9


def test_a_sum_is_attacked_only_where_all_that_is_in_it_is_known(folder, tmp_path):
    one = attacked(folder, ClosedForm(target="aggregate"), SMALL, "sum", clients=(0,))
    assert one["status"] == "not granted"
    assert "granted by the messages of all clients of a round" in one["headline"]
    kept = run(tmp_path / "kept", keep=[KeepTranscript(clients=(0,))])
    assert attacked(kept, ClosedForm(target="aggregate"), SMALL, "sum")["status"] == ("not granted")


def test_messages_that_cannot_be_attacked_are_counted(folder):
    name = "network.layoutlmv3.patch_embed.proj.weight"

    @dataclass(frozen=True)
    class Half:
        """Refuses client 1, as an attack refuses what it cannot work on."""

        def run(self, access: MessageAccess, context: AttackContext) -> tuple[RecoveredBatch, ...]:
            def recover(message):
                if message.key[1]:
                    raise NotApplicable(f"{name} is missing")
                return RecoveredBatch(message.key, message.victim.template.numpy())

            return each(messages(access, "update"), recover, context)

    metrics = attacked(folder, Half(), SMALL, "half")
    assert (metrics["messages"], metrics["refused"]) == (1, 1)
    assert f"refused: {name} is missing" in metrics["notes"]
    assert not metrics["public"]  # the attack is not fedpriv's own


def test_what_is_said_of_each_message_is_told_once(folder):
    @dataclass(frozen=True)
    class Chatty:
        """Refuses every message, for as many examples as its client has a number."""

        def run(self, access: MessageAccess, context: AttackContext) -> tuple[RecoveredBatch, ...]:
            def recover(message):
                raise NotApplicable(f"{message.key[1] + 2} examples are behind the message")

            return each(messages(access, "update"), recover, context)

    refused = attacked(folder, Chatty(), SMALL, "chatty")
    assert refused["headline"] == (
        "not applicable: 2 to 3 examples are behind the message (2 messages)"
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([], []),
        (["a", "b", "a"], ["a (2 times)", "b"]),
        (["1e-07 of v3", "1e-08 of v3"], ["1e-07 of v3", "1e-08 of v3"]),
        (["2 of 10, at 0.5", "9 of 10, at 0.25"], ["2 to 9 of 10, at 0.25 to 0.5 (2 times)"]),
    ],
)
def test_sentences_that_differ_in_numbers_are_told_once(said, told):
    assert told_once(said) == told


def test_a_hybrid_starts_from_the_page_of_the_closed_form(folder):
    inversion = GradientInversion(gi_dqa(0), hybrid=True)
    metrics = attacked(folder, inversion, SMALL, "hybrid")
    assert metrics["psnr_roi"] > 60
    alone = attacked(folder, GradientInversion(gi_dqa(0)), SMALL, "alone")
    assert alone["psnr_roi"] < 15


def test_a_repeated_round_is_attacked_in_its_last_attempt(tmp_path):
    documents = Slips((64, 64), providers=2, documents_per_provider=4, questions=("total",))
    federation = Federation(
        model=SMALL,
        data=DocumentData(documents, Iid(2), HoldOut(fraction=0), cache="off"),
        strategy=FedSGD(),
        client=BatchGradient(),
        keep=[KeepTranscript()],
        runs=tmp_path,
    )
    again = federation.run(1).run_dir
    # As after an interruption: of the first attempt, one client's message had come in.
    first = again / "transcript" / "round-000001"
    shutil.copytree(first, first.with_name("round-000001-attempt-1"))
    (first / "client-0001.safetensors").unlink()
    (first / "aggregate.safetensors").unlink()
    metrics = attacked(again, ClosedForm(), SMALL, "closed_form")
    assert metrics["messages"] == 2
    assert metrics["psnr_roi"] > 70


def test_a_change_after_local_training_is_read_with_its_learning_rate(tmp_path):
    documents = Slips((64, 64), providers=2, documents_per_provider=1, questions=("total",))
    federation = Federation(
        model=SMALL,
        data=DocumentData(documents, Iid(2), HoldOut(fraction=0), cache="off"),
        strategy=FedAvg(weighted=False, buffers=False),
        client=LocalTraining(epochs=1, optimizer=Optimizer(name="sgd", lr=0.05)),
        keep=[KeepTranscript()],
        runs=tmp_path,
    )
    delta = federation.run(1).run_dir
    view = transcript.load(RunFolder.existing(delta))
    assert view.settings["client"]["optimizer"] == {
        "name": "sgd", "lr": 0.05, "weight_decay": 0.0, "momentum": 0.0
    }  # fmt: skip
    page = attacked(delta, ClosedForm(), SMALL, "closed_form")
    assert page["psnr_roi"] > 30  # of 32-bit weights, not of gradients
    assert any("after local training" in note for note in page["notes"])
    inversion = GradientInversion(gi_dqa_tuned(5))
    assert attacked(delta, inversion, SMALL, "tuned")["psnr_roi"] > page["template_psnr_roi"]


@pytest.mark.parametrize("finetuning", [LoRA(4), TopLayers(1), TopLayers(0)])
def test_where_embeddings_are_frozen_all_that_is_trained_is_matched(tmp_path, finetuning):
    model = FineTuned(SMALL, finetuning)
    frozen = run(tmp_path, clients=1, model=model)
    inversion = GradientInversion(gi_dqa_tuned(3))
    given = attacked(frozen, inversion, model, "tuned", assume=Assumed(text="given"))
    assert given["status"] == "done"
    assert given["evaluations"] == 3
    assert any("of layers=pre_fusion all are frozen" in note for note in given["notes"])
    unread = attacked(frozen, inversion, model, "unread")
    assert unread["status"] == "not applicable"
    assert "it is frozen or was not sent" in unread["headline"]
    solved = attacked(frozen, ClosedForm(), model, "closed_form")
    assert "are frozen (finetuning), so their gradients are not sent" in solved["headline"]


def test_a_message_of_zeros_is_refused_with_the_reason(folder):
    view = transcript.load(RunFolder.existing(folder))
    (seen,) = view.rounds
    empty = [
        dataclasses.replace(one, tensors={n: torch.zeros_like(t) for n, t in one.tensors.items()})
        for one in seen.uploads
    ]
    nothing = dataclasses.replace(
        view, rounds=(dataclasses.replace(seen, uploads=(*empty[:1], *seen.uploads[1:])),)
    )
    of = {
        (1, client): load_known(RunFolder.existing(folder), (1, client), Assumed(text="given"))
        for client in range(2)
    }
    context = AttackContext(np.random.default_rng(0), lambda line: None, folder / "scratch")
    access = MessageAccess(nothing, BatchKnowledge(of), Architecture(SMALL))
    (recovered,) = GradientInversion(gi_dqa_tuned(2)).run(access, context)
    assert recovered.message == (1, 1)
    (refused,) = [note for note in context.remarks.notes if note.startswith("refused")]
    assert "no gradient is left to match of layers='pre_fusion'" in refused


@pytest.mark.parametrize(
    ("optimizer", "note"),
    [
        (Optimizer("sgd", lr=1e-3), "3 local steps of sgd were read as 3 times one gradient"),
        (Optimizer("adamw", lr=1e-3), "3 local steps of adamw were simulated"),
    ],
)
def test_a_change_after_several_local_steps_is_more_than_the_template(tmp_path, optimizer, note):
    documents = Slips((64, 64), providers=1, documents_per_provider=1, questions=("total",))
    federation = Federation(
        model=NARROW,
        data=DocumentData(documents, Iid(1), HoldOut(fraction=0), cache="off"),
        strategy=FedAvg(),
        client=LocalTraining(epochs=3, optimizer=optimizer),
        keep=[KeepTranscript()],
        runs=tmp_path,
    )
    trained = federation.run(1).run_dir
    given = {"assume": Assumed(text="given")}
    page = attacked(trained, GradientInversion(gi_dqa_tuned(10)), NARROW, "tuned", **given)
    assert page["psnr_roi"] > page["template_psnr_roi"] + 0.5
    assert any(line.startswith(note) for line in page["notes"])
    unrolled = GradientInversion(gi_dqa_tuned(1), local_steps="unrolled")
    assert attacked(trained, unrolled, NARROW, "unrolled", **given)["evaluations"] == 3


def test_models_without_the_weakness_are_not_applicable(folder):
    batch = run(folder.parent / "batches", clients=1, batch_size=2)
    metrics = attacked(batch, ClosedForm(), SMALL, "closed_form")
    assert metrics["status"] == "not applicable"
    assert "one page only" in metrics["headline"]


# Defences and mistakes


@pytest.mark.slow
def test_a_publisher_changes_what_is_known_not_what_is_sent(folder):
    tuned = GradientInversion(gi_dqa_tuned(30))
    clean = attacked(folder, tuned, SMALL, "clean", clients=(0,))
    safe = attacked(
        folder,
        tuned,
        SMALL,
        "safe",
        clients=(0,),
        publisher=SafeTemplate(64, "random"),
        originals=True,
    )
    assert safe["template_psnr_page"] < clean["template_psnr_page"]
    assert any("SafeTemplate" in line for line in safe["assumptions"])
    stolen = attacked(folder, ClosedForm(), SMALL, "form", publisher=SafeTemplate(64, "random"))
    assert stolen["psnr_roi"] > 60
    aside = "the template does not fit the gradient, and was left aside (2 times)"
    assert aside in stolen["notes"]


@pytest.mark.slow
def test_clipping_by_an_unknown_factor_stops_no_inversion(tmp_path):
    clipped = run(tmp_path, clients=1, clip_norm=1e-3)
    tuned = attacked(clipped, GradientInversion(gi_dqa_tuned(40)), SMALL, "tuned")
    assert tuned["psnr_roi"] > tuned["template_psnr_roi"] + 3
    assert attacked(clipped, ClosedForm(), SMALL, "closed_form")["psnr_roi"] > 70
    text = attacked(clipped, TextRecovery(), SMALL, "text")
    assert text["answer_exact"] == text["exact_position"] == 1


def test_mistakes_are_named(folder, tmp_path):
    with pytest.raises(transcript.NoTranscript, match=r"rounds=\[7\]: expected rounds"):
        attacked(folder, ClosedForm(), SMALL, "x", rounds=(7,))
    with pytest.raises(transcript.NoTranscript, match=r"clients=\[99\]: .* kept, \[0, 1\]"):
        attacked(folder, ClosedForm(), SMALL, "x", clients=(1, 99))
    with pytest.raises(ValueError, match=r"clients=\[\]: name at least one"):
        attacked(folder, ClosedForm(), SMALL, clients=())
    with pytest.raises(ValueError, match="transcript is of another model"):
        attacked(folder, ClosedForm(), partial(layoutlmv3, task="answers", size="small"), "x")
    for name in ("../x", "..", ".", ""):
        with pytest.raises(ValueError, match="expected the name of a folder"):
            attacked(folder, ClosedForm(), SMALL, name)
    with pytest.raises(ValueError, match="target='masks': expected one of update, aggregate"):
        ClosedForm(target="masks")
    with pytest.raises(ValueError, match="text='some': expected one of none, given"):
        Assumed(text="some")


def test_the_same_seed_gives_the_same_findings(folder):
    noise = [
        attacked(folder, GradientInversion(random()), SMALL, "random", seed=seed)["psnr_roi"]
        for seed in (0, 0, 1)
    ]
    assert noise[0] == noise[1] != noise[2]


def test_recovered_messages_have_names():
    from fedpriv.threat.scoring.pages import message_name

    assert message_name((3, 2)) == "round-3-client-2"
    assert message_name((3, None)) == "round-3-aggregate"
    assert RecoveredBatch((1, 0)).pages is None
