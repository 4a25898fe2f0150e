"""Published budgets, and reference values of third-party accountants.

The tables in `oracle/` were computed with opacus 1.6.0, prv-accountant 0.2.0 and dp-accounting
0.6.0. `pld_google` is an upper value on a fine grid; `eps_exact` a closed form, where there is one.
PFL-DocVQA is Tito et al. 2024, PrIeD-KIE Saifullah et al. 2023.
"""

import csv
import math
from pathlib import Path

import pytest

from fedpriv.config import catalogue, experiment
from fedpriv.privacy.accounting import prv
from fedpriv.privacy.accounting.accountants import epsilon, estimates, noise_multiplier
from fedpriv.privacy.accounting.event import ClientThenRecord
from fedpriv.privacy.views import view_events

ORACLE = Path(__file__).parent / "oracle"


def table(name):
    with (ORACLE / name).open(newline="") as file:
        return [
            {k: v if k == "tag" else float(v) if v else None for k, v in row.items()}
            for row in csv.DictReader(file)
        ]


def name_of(row):
    return f"{row['id']:g}-{row['tag']}"


SINGLE = table("accounting_oracle.csv")
CLUSTER = table("accounting_oracle_cluster.csv")


def sampled(q, sigma, steps):
    return [(ClientThenRecord(1.0, q, sigma), int(steps))]


def clustered(row, sigma=None):
    event = ClientThenRecord(row["q_client"], row["q_record"], sigma or row["sigma"])
    return [(event, int(row["steps"]))]


def allowed(reference):
    return max(2e-3, 1e-3 * reference)


def test_the_reference_tables_are_there():
    assert len(SINGLE) == 59
    assert len(CLUSTER) == 23
    assert sum(row["eps_exact"] is not None for row in SINGLE) == 13


@pytest.mark.parametrize("row", SINGLE, ids=name_of)
def test_reference_rows(row):
    found = estimates(sampled(row["q"], row["sigma"], row["steps"]), row["delta"])

    assert found["pld"].epsilon == pytest.approx(
        row["pld_google"], abs=allowed(row["pld_google"]), rel=0
    )
    if row["eps_exact"] is not None:
        assert row["eps_exact"] <= found["pld"].epsilon <= row["eps_exact"] * 1.001 + 2e-3
    # Opacus tries no order above 63, ours go on to 1024: never above it, and above the truth.
    assert row["pld_google_optimistic"] <= found["rdp"].epsilon <= row["rdp_opacus"] + 1e-6
    # Opacus' bracket is as wide as ours up to epsilon 30, and a third of a promille beyond.
    expected = max(row["prv_opacus_upper"], row["prv_opacus_est"] * (1 + 1 / prv.WIDENED))
    assert found["prv"].epsilon == pytest.approx(expected, abs=1e-3, rel=1e-4)
    assert found["prv"].reason == ""
    if row["q"] < 1 and row["gdp_poisson"] is not None:
        assert found["gdp"].epsilon == pytest.approx(row["gdp_poisson"], rel=1e-6)
        assert found["gdp"].reason == "approximation, not a bound"
    if row["q"] == 1:
        assert found["gdp"].epsilon == pytest.approx(
            row["eps_exact"] or row["pld_google"], rel=1e-6
        )
        assert found["gdp"].reason == "exact: no sampling"


@pytest.mark.parametrize("row", CLUSTER, ids=name_of)
def test_reference_rows_with_a_client_stage(row):
    delta = row["delta"]
    found = estimates(clustered(row), delta)
    expected = row["eps_cluster_pld"]
    assert found["pld"].epsilon == pytest.approx(expected, abs=allowed(expected), rel=0)
    assert found["rdp"].epsilon == pytest.approx(row["eps_cluster_rdp"], rel=1e-5)
    assert found["prv"].epsilon == pytest.approx(expected + 0.0105, abs=2e-3)

    views = view_events(row["q_client"], row["q_record"], row["sigma"], int(row["m"]))
    for view, column in (("paper", "eps_iid_paper"), ("server_plain", "eps_local_noSA_m")):
        seen = epsilon([(views[view].event, int(row["steps"]))], delta)
        assert seen == pytest.approx(row[column], abs=allowed(row[column]), rel=0)
    alone = epsilon(sampled(row["q_record"], row["sigma"], row["steps"]), delta)
    assert alone == pytest.approx(row["eps_no_client_amp"], abs=allowed(alone), rel=0)


CENTRAL = 1000 / 4149
"""PFL-DocVQA's providers of a round over all providers of its ten clients."""


@pytest.mark.slow
def test_a_noise_multiplier_of_004_table_12():
    found = noise_multiplier(lambda s: sampled(CENTRAL, s, 10), 1, 1e-5, "prv_opacus")
    assert found == 3.3203125


@pytest.mark.parametrize(
    ("target", "published", "left"),
    [
        (4, 1.25244140625, 0.01),
        # Opacus' search of today, whose tolerance is .01, goes one step further.
        (8, 0.83251953125, 0.011),
    ],
)
def test_the_epsilon_of_other_noise_of_004_table_12(target, published, left):
    found = epsilon(sampled(CENTRAL, published, 10), 1e-5, "prv_opacus")
    assert target - left <= found <= target


TABLE_3 = {
    # q = 1 / batches per epoch, T = 50 / q, delta = 1 / documents; noise multiplier for RDP's
    # epsilon 8 and 20, then what the paper prints for GDP and PRV, cut after two digits.
    "FUNSD": (7, 389, (1.50146484375, 6.96, 7.01), (0.901641845703125, 19.52, None)),
    "CORD": (3, 840, (2.23876953125, 7.07, 7.11), (1.22100830078125, 19.35, 17.94)),
    "SROIE": (5, 1601, (1.85546875, 7.03, 7.15), (1.0504150390625, 19.04, 17.95)),
    "WildReceipts": (6, 2204, (1.744384765625, 7.03, 7.17), (1.0015869140625, 18.93, 17.97)),
    "XFUND": (9, 562, (1.3873291015625, 6.95, None), (0.85052490234375, 19.40, None)),
    "DOCILE": (3, 9768, (2.51953125, 7.15, 7.28), (1.3287353515625, 18.89, 18.28)),
}
CASES = [
    (name, batches, documents, target, *row)
    for name, (batches, documents, eight, twenty) in TABLE_3.items()
    for target, row in ((8, eight), (20, twenty))
]


@pytest.mark.parametrize(
    ("name", "batches", "documents", "target", "sigma", "gdp", "prv_cut"),
    CASES,
    ids=[f"{case[0]}-{case[3]}" for case in CASES],
)
def test_epsilons_of_002_table_3(name, batches, documents, target, sigma, gdp, prv_cut):
    q, steps, delta = 1 / batches, 50 * batches, 1 / documents
    assert noise_multiplier(lambda s: sampled(q, s, steps), target, delta, "rdp") == sigma
    found = estimates(sampled(q, sigma, steps), delta)
    assert math.floor(found["gdp"].epsilon * 100) / 100 == gdp
    if prv_cut is not None:
        assert math.floor(found["prv"].epsilon * 100) / 100 == prv_cut


TABLE_7 = {
    # Of PrIeD-KIE, by recipe: its row in Table 3, L, B, dropout, and from Table 1 the examples at
    # that L.
    "funsd": ("FUNSD", 128, 64, 0.1, 389),
    "cord": ("CORD", 128, 384, 0.0, 840),
    "sroie": ("SROIE", 128, 384, 0.0, 1601),
    "wildreceipt": ("WildReceipts", 128, 384, 0.0, 2204),
    "xfund": ("XFUND", 128, 64, 0.1, 562),  # Table 7 prints B = 384, at odds with its own q = 1/9
    "docile": ("DOCILE", 512, 3256, 0.0, 9768),
}


def test_every_recipe_is_compared_with_the_paper():
    assert set(catalogue.groups()["recipe"]) == {*TABLE_7, "none"}


@pytest.mark.parametrize("recipe", TABLE_7)
def test_a_recipe_has_the_constants_of_002(recipe):
    row, length, batch, dropout, examples = TABLE_7[recipe]
    batches, documents, *_ = TABLE_3[row]
    assert (math.ceil(examples / batch), examples) == (batches, documents)

    config = experiment.load("pried_kie_dp", [f"recipe={recipe}"])
    assert config["model"]["max_length"] == length
    assert config["model"]["dropout"] == dropout
    mechanism = config["strategy"]["mechanism"]
    assert (mechanism["clip_norm"], mechanism["examples"]) == (0.1, examples)
    q, steps, delta = mechanism["record_rate"], config["rounds"], mechanism["delta"]
    assert (q, steps, delta) == (1 / batches, 50 * batches, 1 / examples)


def noise_of(name, *overrides):
    built = experiment.build(experiment.load(name, overrides), name)
    return built.strategy.mechanism.noise_multiplier


@pytest.mark.parametrize("recipe", TABLE_7)
def test_the_noise_of_002_table_3_comes_out_of_its_recipe(recipe):
    _, _, (eight, *_), (twenty, *_) = TABLE_3[TABLE_7[recipe][0]]
    assert noise_of("pried_kie_feam_dp", f"recipe={recipe}") == eight
    assert noise_of("pried_kie_dp", f"recipe={recipe}", "privacy.epsilon=20") == twenty


def test_half_of_the_clients_take_002s_noise_in_002s_view_only():
    half = (
        "recipe=funsd",
        "data.partition.clients=16",
        "strategy.mechanism.client_rate=0.5",
        "privacy.record_rate=0.285714",
    )
    assert noise_of("pried_kie_feam_dp", *half, "privacy.view=paper") == 1.50146484375
    assert noise_of("pried_kie_feam_dp", *half) > 1.8


@pytest.mark.slow
def test_the_noise_of_004_table_12_comes_out_of_its_experiment():
    published = ("strategy.mechanism.client_rate=0.2", "privacy.view=paper")
    opacus = "privacy.accountant=prv_opacus"
    assert noise_of("pfl_docvqa_fl_dp", *published, opacus) == 0.771484375


@pytest.mark.parametrize(
    ("name", "column", "published", "truth", "upper"),
    [
        # Opacus up to 1.4.0 integrated the mean of the loss wrongly. With its default error of
        # .01 it raises on these two; with an error of 1 its biased estimates are 20.07 and
        # 18.07, just what is printed. The true values are 2.4 and .4 lower.
        ("FUNSD", 3, 20.0, 17.628, 17.639),
        ("XFUND", 3, 18.07, 17.663, 17.675),
        # The same bias, without the error: 7.057, printed as 7.05.
        ("XFUND", 2, 7.05, 7.032, 7.043),
    ],
)
def test_three_of_002_table_3_cannot_be_reproduced(name, column, published, truth, upper):
    batches, documents, *rows = TABLE_3[name]
    found = estimates(sampled(1 / batches, rows[column - 2][0], 50 * batches), 1 / documents)
    assert found["pld"].epsilon == pytest.approx(truth, abs=2e-3)
    assert found["prv"].epsilon == pytest.approx(upper, abs=1e-3)
    assert found["prv"].epsilon < math.floor(published * 100) / 100


FL_PROVIDER_DP = (0.2, 1.0, 0.771484375)


def seen(view, rates_and_noise, cohort, steps, delta):
    event = view_events(*rates_and_noise, cohort)[view].event
    return epsilon([(event, steps)], delta)


@pytest.mark.parametrize(
    ("view", "expected"),
    [("paper", 7.98), ("global", 14.46), ("server_masked", 14.46), ("server_plain", 23.68)],
)
def test_what_fl_provider_dp_holds_for_whom(view, expected):
    assert seen(view, FL_PROVIDER_DP, 2, 10, 1e-5) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(
    ("view", "needed"),
    [
        ("paper", (2.826, 1.134, 0.771)),
        ("server_masked", (6.935, 2.102, 1.204)),
        ("server_plain", (9.81, 2.97, 1.70)),
    ],
)
def test_the_noise_that_fl_provider_dp_needs(view, needed):
    for target, expected in zip((1, 4, 8), needed, strict=True):

        def history(sigma):
            return [(view_events(0.2, 1.0, sigma, 2)[view].event, 10)]

        assert noise_multiplier(history, target, 1e-5) == pytest.approx(expected, rel=0.011)


@pytest.mark.parametrize(
    ("clients", "client_rate", "record_rate", "eight", "twenty"),
    [
        (2, 1.0, 1 / 7, 12.8, 38.0),
        (4, 0.5, 2 / 7, 19.7, 53.9),
        (8, 0.5, 2 / 7, 38.3, 116.6),
        (16, 0.5, 2 / 7, 80.4, 262),
    ],
)
def test_what_feam_dp_holds_against_its_server(clients, client_rate, record_rate, eight, twenty):
    cohort = round(clients * client_rate)
    for sigma, claimed, expected in (
        (1.50146484375, 7.0, eight),
        (0.901641845703125, 17.63, twenty),
    ):
        run = (client_rate, record_rate, sigma)
        assert seen("paper", run, cohort, 350, 1 / 389) == pytest.approx(claimed, abs=0.006)
        assert seen("server_plain", run, cohort, 350, 1 / 389) == pytest.approx(
            expected, abs=0.06, rel=5e-4
        )


@pytest.mark.parametrize(("windows", "expected"), [(1, 7.00), (2, 18.5), (3, 33.9), (4, 53.1)])
def test_a_whole_form_of_several_windows(windows, expected):
    event = ClientThenRecord(1.0, 1 / 7, 1.50146484375, group_size=windows)
    assert epsilon([(event, 350)], 1 / 389) == pytest.approx(expected, abs=0.06)
