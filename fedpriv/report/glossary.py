"""The words of a report that need explaining; a page ends with those that it uses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

GLOSSARY: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "epsilon": (
        "ε (epsilon) and δ",
        "The bound of differential privacy. With or without one supplier (or whatever the unit "
        "is), any outcome of the training is at most e^ε times as likely, except with probability "
        "δ. Smaller is more private: at 0.1 nothing much can be learnt, at 8 little is proven, and "
        "∞ promises nothing.",
        ("ε", "δ"),
    ),
    "accountant": (
        "Accountant",
        "A way to compute ε from the noise and the number of rounds. PLD is the tightest of ours. "
        "RDP is an upper bound. PRV is another numerical method. GDP is an approximation. Where "
        "they differ, quote PLD.",
        ("pld", "rdp", "prv", "gdp", "accountant"),
    ),
    "supplier": (
        "Supplier",
        "Who issued a document, such as the company on an invoice. Its documents say the same name "
        "and address again and again, so a model remembers it easily. Papers and settings say "
        "provider.",
        ("supplier", "suppliers"),
    ),
    "client": (
        "Client",
        "One participant of the federation, which holds documents and trains on them. It sends the "
        "server its update, never a document.",
        ("client", "clients"),
    ),
    "view": (
        "Who is looking",
        "The same run shows more to some than to others. Whoever sees the global models sees one "
        "model a round. The server also knows who took part, and without secure aggregation it "
        "sees the update of each client. The papers' own accounting assumes that every record is "
        "drawn on its own, which does not hold here.",
        ("who is looking",),
    ),
    "secure-aggregation": (
        "Secure aggregation (masking)",
        "Clients mask their updates so that the server can read their sum and nothing else.",
        ("masking", "server masked"),
    ),
    "verdict": (
        "Verdict",
        "Leak: the attack got more than the control does. None shown: it did not, although a leak "
        "of a size worth knowing about would have shown. Cannot tell: too little was judged to say "
        "either. Not applicable: the attack could not be made on this run.",
        ("verdict",),
    ),
    "control": (
        "Control",
        "The same number where nothing can leak, such as by guessing or on documents that nobody "
        "trained on. An attack has shown something only where it is above its control.",
        ("control", "chance", "baseline"),
    ),
    "detectable": (
        "Could have shown",
        "The smallest value that an experiment of this size would have told apart from the control "
        "in four of five repetitions.",
        ("could have shown",),
    ),
    "p-value": (
        "p",
        "How likely a number at least this far from the control is, by chance alone. Below 0.05 "
        "counts as shown. Beside the first row, p-values are corrected for the number of rows.",
        ("p", "p of it"),
    ),
    "interval": (
        "95 % interval",
        "In 95 of 100 repetitions of the experiment, such an interval holds the true value. A wide "
        "one means that too few were judged.",
        ("95 % interval",),
    ),
    "membership": (
        "Member",
        "A supplier (or a document) that the model was trained on. A membership attack tells "
        "members from others.",
        ("members", "others", "member"),
    ),
    "auc": (
        "AUC",
        "The share of pairs, of one member and one other, that an attack puts in the right order. "
        "0.5 is guessing, 1 is perfect.",
        ("auc", "auc of it"),
    ),
    "roc": (
        "ROC, TPR and FPR",
        "The true positive rate (TPR) is the share of members that an attack finds, the false "
        "positive rate (FPR) the share of others that it takes for members. The ROC curve shows "
        "one over the other. The TPR at an FPR of 1 % is the share that is found by an adversary "
        "who can afford few false alarms.",
        ("tpr at 1 %", "tpr", "fpr", "members found (tpr) by false alarms (fpr)"),
    ),
    "prior": (
        "Prior",
        "The accuracy of always giving the more frequent answer. An accuracy at the prior is no "
        "better than that.",
        ("prior",),
    ),
    "balanced": (
        "Balanced accuracy",
        "The mean of the accuracy on members and of that on others. 0.5 is guessing.",
        ("balanced",),
    ),
    "classifier": (
        "Classifiers of membership",
        "Ways to decide who is a member, after PFL-DocVQA. azk and kmeans_all split the suppliers "
        "into two clusters and need no known member. apk is trained on suppliers whose membership "
        "is known. log_ratio is by how much training lowered the logarithm of the loss; "
        "apk_log_ratio adds that to apk. cls1 and cls2 use what changed against the public model. "
        "The ensembles (azk_ensemble, apk_ensemble) vote. The endings g1 to g4 name the features "
        "that are used.",
        (
            "classifier",
            "azk",
            "apk",
            "log_ratio",
            "kmeans_all",
            "cls1",
            "cls2",
            "azk_ensemble",
            "apk_ensemble",
        ),
    ),
    "questions": (
        "s and n",
        "s: suppliers with so few questions are left out. n: how many suppliers are judged.",
        ("s", "n"),
    ),
    "clients-right": (
        "Clients right",
        "The share of members for which the attack also named the client that holds them.",
        ("clients right",),
    ),
    "update": (
        "Update (message)",
        "What a client sends the server after training: how its copy of the model changed. It is "
        "computed from the client's documents, which is why it can give them away.",
        ("message", "messages", "update"),
    ),
    "template": (
        "Template",
        "The page with its private fields left blank. An attack that knows it starts from there, "
        "and has learnt something only where it comes closer to the original than the template.",
        ("template",),
    ),
    "psnr": (
        "PSNR",
        "How close a picture is to the original, in decibels. Below 10 dB little can be seen, from "
        "about 20 dB text can be read, above 40 dB the eye sees no difference. psnr_roi_gain is "
        "how much closer to the original the private fields are than those of the template.",
        ("psnr", "psnr, page", "psnr, private fields", "psnr_roi_gain"),
    ),
    "recovered": (
        "Pages and texts recovered",
        "pages_recovered is the share of the pages whose private fields come out 3 dB or more "
        "nearer to the original than the template is; private_text the share of the private fields "
        "all of whose words were read, and token_set_recall that of the different words. What is "
        "made of one message fits others too, by chance: that is the control.",
        ("pages recovered", "private fields", "different tokens", "pages_recovered"),
    ),
    "ssim": (
        "SSIM",
        "How alike two pictures are in structure: 1 means the same, about 0 means unrelated.",
        ("ssim", "ssim, private fields"),
    ),
    "fft": (
        "FFT distance",
        "The distance between the spectra of two pictures. 0 means the same picture.",
        ("fft distance",),
    ),
    "reading": (
        "Fields read exactly, fuzz ratio",
        "What a text reader (Tesseract) makes of the recovered private fields: the share that it "
        "reads without a mistake, and how alike the texts are, from 0 to 1.",
        ("fields read exactly", "fuzz ratio"),
    ),
    "f1": (
        "F1, precision and recall",
        "How well the model finds the fields of a page: precision is the share of its findings "
        "that are right, recall the share of the fields that it finds, and F1 their harmonic mean.",
        ("f1", "precision", "recall"),
    ),
    "anls": (
        "ANLS",
        "How close answers are to the accepted ones, from 0 to 1, with small spelling mistakes "
        "forgiven in part.",
        ("anls", "Δanls / |m|"),
    ),
    "seen": (
        "Seen and unseen suppliers",
        "Held-out documents of suppliers that were trained on (seen), and of suppliers that were "
        "not (unseen). A large gap between their scores means that the model knows its suppliers "
        "by heart.",
        ("seen suppliers", "unseen suppliers"),
    ),
    "extraction": (
        "E, G and M",
        "E: training answers that the model gives although they were removed from the page. G: "
        "answers that a model trained without them gives too, so that they can be inferred. "
        "M: those in E but not in G, which must have been memorised. PII is personal information.",
        ("|e|", "|g|", "|m|", "|g ∖ e|", "pii in m", "unique pii", "answers in m"),
    ),
    "exposure": (
        "Exposure",
        "How far a planted secret stands out among secrets of the same kind that were not planted, "
        "in bits. About 1.44 is what chance gives; each bit more halves the guesses that it takes "
        "to find the secret.",
        ("exposure", "uniform ranks"),
    ),
    "ipf": (
        "IpF, PR, HamAAC and AccAUC",
        "Scores of reconstructed fields, after CDMI. PR is the share of perfect reconstructions, "
        "IpF how many times better the attack is than its baseline, as the mean of four measures. "
        "AccAUC and HamAAC take the fields by how sure the attack is: the share of perfect ones, "
        "and of right tokens, among the surest, on average.",
        ("ipf", "pr", "hamaac", "accauc"),
    ),
}
"""Anchor → the term, its explanation, and the texts that lead to it."""

_ANCHORS = {alias.lower(): anchor for anchor, (*_, names) in GLOSSARY.items() for alias in names}
_LINK = re.compile(r'href="#term-([a-z0-9-]+)"')


def term(text: str) -> Markup:
    """Returns a text, escaped, as a link to its explanation if there is one."""
    anchor = _ANCHORS.get(text.lower())
    if anchor is None:
        return escape(text)
    return Markup('<a class="term" href="#term-{}">{}</a>').format(anchor, text)


def used(html: str) -> list[tuple[str, str, str]]:
    """Returns anchor, term and explanation of what a page links to, in alphabetical order."""
    anchors = {anchor for anchor in re.findall(_LINK, html) if anchor in GLOSSARY}
    return [
        (anchor, *GLOSSARY[anchor][:2])
        for anchor in sorted(anchors, key=lambda one: GLOSSARY[one][0].lower())
    ]
