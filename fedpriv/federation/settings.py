"""How rounds are run, whatever the algorithm."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

MOST_WORKERS = 1024

MOST_THREADS = max(64, 4 * (os.cpu_count() or 1))


@dataclass(frozen=True)
class Settings:
    """How the rounds are run, whatever the algorithm.

    Args:
        workers: 0 serves the clients in this process, n ≥ 1 on n Ray workers.
        chunk_size: how many clients a worker takes in one call and sums; None for an eighth of the
            cohort. It decides the order of additions and so the bits; the number of workers does
            not.
        client_timeout: seconds that one client may take before it counts as missing.
        round_deadline: seconds for the answers to what a round sends; a client that has not
            answered by then counts as missing. A masked round sends four times, each with this
            deadline. It is wall time, so which clients miss it differs from run to run;
            `faults=slow` simulates slow clients instead.
        min_clients: the fewest answers with which a round counts. With fewer the model stays as it
            was, and the run goes on with the next round and its cohort. An empty Poisson cohort is
            a round like any other unless this is above 1.
        max_refused: how many rounds in a row may not count before the run ends (it can be resumed);
            0 never ends it.
        threads: torch threads for one client.
        device: where clients train and the model is evaluated, such as "cpu" or "cuda".
        evaluate_every: rounds between evaluations; the last round is always evaluated.
        checkpoint_every: rounds between checkpoints; the last round always has one.
        keep_checkpoints: how many of the newest checkpoints to keep; 0 keeps all.
        report: whether the command that ran it writes report.html; `fedpriv report` always does.
    """

    workers: int = 0
    chunk_size: int | None = None
    client_timeout: float | None = None
    round_deadline: float | None = None
    min_clients: int = 1
    max_refused: int = 10
    threads: int = 1
    device: str = "cpu"
    evaluate_every: int = 1
    checkpoint_every: int = 1
    keep_checkpoints: int = 2
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
        epsilon: the ε that must hold where a strategy names no noise multiplier.
        delta: the δ of (ε, δ)-differential privacy.
        view: whom ε must hold against: "global", "server_masked", "server_plain" or "paper"
            (`fedpriv.privacy.views`).
        accountant: finds the noise: "pld", "rdp" as in PrIeD-KIE, or "prv_opacus" as in PFL-DocVQA.
        clients: how many clients the federation has; the view "server_plain" and colluders need it.
        cohort: how many clients every round has, instead of `clients`, where that number is fixed.
        colluders: how many clients tell the masked server their noise.
        examples: about how many training examples all clients have together.
        record_rate: probability with which each example is drawn for a step; q of PrIeD-KIE.
        providers: M of FL-PROVIDER-DP, by which a client's sum over providers is divided: the
            fewest that a client has or, where providers are drawn too, about how many are drawn.
        entropy: "seed" draws the noise from the run's seed, so whoever knows the seed knows the
            noise. "os" adds a secret of the operating system's: no run can be repeated to the bit,
            and a round that was cut off is a new attempt, booked beside the old one. Take "os" for
            a model that will be released, and on a GPU, where the same run may round otherwise.
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
    entropy: Literal["seed", "os"] = "seed"


@dataclass(frozen=True)
class Training:
    """What an experiment sets once for whatever strategy is chosen, as ``${training.lr}``.

    Args:
        lr: learning rate of the clients' optimisers.
        server_lr: learning rate of the server's Adam, where clients send gradients, not models.
        batch_size: how many examples a client's step takes.
        steps: how many steps a whole training has that adds noise to every step: epochs divided by
            the record rate.
        epochs: how many epochs a client trains in a round, where it trains a model of its own.
    """

    lr: float = 2e-4
    server_lr: float = 5e-4
    batch_size: int = 8
    steps: int = 100
    epochs: int = 2
