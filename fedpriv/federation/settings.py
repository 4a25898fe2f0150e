"""How rounds are run, whatever the algorithm."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from fedpriv.privacy.salt import Entropy
from fedpriv.runtime.outside import ServiceSetting
from fedpriv.runtime.trackers.base import TRACKERS
from fedpriv.training.computing import Computing

MOST_WORKERS = 1024

MOST_THREADS = max(64, 4 * (os.cpu_count() or 1))


@dataclass(frozen=True)
class Settings:
    """How the rounds are run, whatever the algorithm.

    Args:
        workers: the number of processes that serve the clients, at most 1024; 0 serves all clients
            in the process of the run itself. The processes run on this machine, unless `ray` says
            that they run on Ray.
        chunk_size: the number of clients that a worker serves in one call, whose updates it adds
            up. None takes an eighth of the round's clients. It decides the order of additions, and
            so the exact bits of the result; the number of workers does not.
        cohort_batch: the number of clients of a chunk that train in one pass, as if each were
            alone; the results are the same up to rounding. It decides the last bits. "auto" takes 1
            on a CPU, and on a GPU as many as have 256 MiB of parameters together, at most 16; it
            takes 1 where clients cannot train together.
        client_timeout: the time in seconds that one client may take before it counts as missing.
            None sets no limit. It needs `workers` of 1 or more.
        round_deadline: the time in seconds that clients have to answer each message of a round; a
            client that has not answered by then counts as missing. None sets no limit. A masked
            round sends four messages, each with this deadline. It is wall time, so which clients
            miss it differs from run to run; `faults=slow` simulates slow clients instead.
        min_clients: the smallest number of answers with which a round counts. With fewer, the model
            stays as it was, and the run goes on with the next round and newly drawn clients. A
            round for which Poisson sampling draws no client counts too, unless this is above 1.
        max_refused: the number of rounds in a row that may fail to count before the run ends; it
            can be resumed. 0 never ends the run.
        threads: the number of torch threads that one client may use.
        device: the device on which clients train and the model is evaluated, such as "cpu" or
            "cuda". Of several GPUs, "cuda" gives each worker one, in turn.
        evaluate_every: the number of rounds from one evaluation to the next; the last round is
            always evaluated.
        checkpoint_every: the number of rounds from one checkpoint to the next; the last round
            always has one.
        keep_checkpoints: the number of newest checkpoints that are kept; 0 keeps all.
        trackers: where else the metrics go: any of "tensorboard", "mlflow" and "wandb". The last
            two need `pip install fedpriv[trackers]`. MLflow writes into `mlflow.db` in the folder
            `runs`, or where MLFLOW_TRACKING_URI says; Weights & Biases into the run folder, and to
            its service only with WANDB_MODE=online.
        report: whether the command that runs the experiment also writes report.html; `fedpriv
            report` writes it in any case.
    """

    workers: int = 0
    chunk_size: int | None = None
    cohort_batch: int | Literal["auto"] = "auto"
    client_timeout: float | None = None
    round_deadline: float | None = None
    min_clients: int = 1
    max_refused: int = 10
    threads: int = 1
    device: str = "cpu"
    evaluate_every: int = 1
    checkpoint_every: int = 1
    keep_checkpoints: int = 2
    trackers: tuple[ServiceSetting, ...] = ("tensorboard",)
    report: bool = True

    def __post_init__(self) -> None:
        least = {
            "workers": 0,
            "chunk_size": 1,
            "min_clients": 0,
            "max_refused": 0,
            "threads": 1,
            "evaluate_every": 1,
            "checkpoint_every": 1,
            "keep_checkpoints": 0,
        }
        if unknown := [name for name in self.trackers if name not in TRACKERS]:
            raise ValueError(f"trackers: got {unknown[0]!r}: expected any of {', '.join(TRACKERS)}")
        if self.cohort_batch != "auto" and self.cohort_batch < 1:
            raise ValueError(f"cohort_batch={self.cohort_batch}: expected at least 1, or 'auto'")
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ValueError(f"{name}={value}: expected at least {minimum}")
        # Far more than any machine has; without a bound, a slip of the keyboard ends in a crash.
        for name, most in {"workers": MOST_WORKERS, "threads": MOST_THREADS}.items():
            if getattr(self, name) > most:
                raise ValueError(f"{name}={getattr(self, name)}: expected at most {most}")
        for name in ("client_timeout", "round_deadline"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise ValueError(f"{name}={seconds}: expected seconds above 0")
        if self.client_timeout is not None and self.workers == 0:
            raise ValueError(
                f"client_timeout={self.client_timeout} needs workers of their own, which can be "
                "replaced: set workers=1 or more, or leave client_timeout out"
            )


@dataclass(frozen=True)
class Privacy:
    """Public constants that the strategies of an experiment refer to, as ``${privacy.epsilon}``.

    They are settings, because a number that is computed from private data is itself a release.

    Args:
        epsilon: the largest ε that the whole run may spend. The noise is found for it, unless the
            strategy names a noise multiplier.
        delta: the δ of (ε, δ)-differential privacy, in (0, 1).
        view: the observer against whom ε must hold (`fedpriv.privacy.views`): "global" is anybody
            who sees the global models, "server_masked" the server if updates are masked,
            "server_plain" the server if it sees each update. "paper" computes ε as the papers do,
            which is no guarantee if clients are sampled.
        accountant: the method that computes ε and finds the noise: "pld", "rdp" (used by
            PrIeD-KIE), "prv_opacus" (used by PFL-DocVQA), "prv" or "gdp".
        clients: the number of clients in the federation. The view "server_plain" and `colluders`
            need either this or `cohort`; otherwise it may be None.
        cohort: the number of clients in each round, if all rounds have the same number. It may be
            given in place of `clients`; otherwise it is None.
        colluders: the number of clients that are assumed to tell the server their share of the
            noise; only the view "server_masked" takes it.
        examples: about how many training examples all clients have together. It is a public
            constant by which noisy sums are divided, and a guess will do. Strategies that protect
            single examples need it; others leave it None.
        record_rate: the probability with which each example is drawn for a step (q in PrIeD-KIE),
            in (0, 1].
        providers: the public constant by which a client's sum over its providers is divided (M of
            FL-PROVIDER-DP): the smallest number of providers that any client has or, if providers
            are sampled too, about how many are drawn. Strategies that protect providers need it;
            others leave it None.
        entropy: what noise and masks are drawn from beside the seed. "run" draws a salt from the
            operating system for each run and keeps it in the run folder: two runs share no noise
            and no mask, and a resumed run has the same bits. "os" keeps it nowhere: a round that
            was cut off is repeated under other noise, and accounted for beside the first attempt.
            Take it for a model that will be released, and on a GPU, where the same run may round
            differently the next time. "seed" draws all from the seed, so that the same experiment
            has the same bits: whoever knows the seed knows the noise, and runs on other answers of
            the clients must be accounted for together (`fedpriv budget`).
        audit: whether the mechanism is measured at the end of a private run, which takes some
            seconds: canaries show a lower bound on ε, to be held against the ledger. `fedpriv
            audit` does the same at greater length.
    """

    epsilon: float = 8.0
    delta: float = 1e-5
    view: str = "global"
    accountant: str = "pld"
    clients: int | None = None
    cohort: int | None = None
    colluders: int = 0
    examples: float | None = None
    record_rate: float = 0.2
    providers: float | None = None
    entropy: Entropy = "run"
    audit: bool = False


@dataclass(frozen=True)
class Training(Computing):
    """What an experiment sets once for whatever strategy is chosen, as ``${training.lr}``.

    How gradients are computed (`Computing`) holds for every strategy by itself.

    Args:
        lr: the learning rate of the clients' optimisers where gradients get no noise, as in FedAvg
            and FL-PROVIDER-DP.
        server_lr: the learning rate of Adam where gradients get noise: at the server in FeAm-DP, at
            the clients in FedAvg-DP.
        batch_size: the number of examples in one optimiser step of a client.
        steps: the number of steps in the whole training, for strategies that add noise to every
            step: the number of epochs divided by the record rate.
        epochs: the number of epochs that a client trains in a round, for strategies such as FedAvg.
    """

    lr: float = 2e-4
    server_lr: float = 5e-4
    batch_size: int = 8
    steps: int = 100
    epochs: int = 2
