"""What masking costs a client and the server in CPU time, beside what it could be compared to.

    python benchmarks/masking.py                    # 30 M parameters, 8 clients, 7 repeats
    python benchmarks/masking.py --quick            # does it run at all
    python benchmarks/masking.py --json masking.json

Seconds are `time.process_time` of one process, which does everything on one thread; all
contenders run once in each repeat, one after the other, and ratios are formed within a repeat.
Shown are the median over the repeats and (least-most).

- masking: `Client.mask`: encoding, the own mask and 7 pair masks, key agreement included.
- keys: stages 0, 1 and 3 of one client; they do not depend on the length of the vector.
- copy: the vector copied into fresh memory, the least that any pass over it costs.
- ChaCha20, AES-CTR: 8 key streams of the same length alone, no vector, in blocks that fit a
  cache; AES is there to know what another choice would cost.
- Flower: its SecAgg+ primitives, per client 7 times `pseudo_rand_gen` and the addition, once for
  its own mask, and `quantize`; at a smaller length (`--flower-size`) and scaled. It is skipped,
  and said, where Flower has moved them.
- unmask: the server's part, with nobody and with one client dropped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import time
from collections.abc import Callable

import cryptography
import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedpriv.federation.secagg.masks import BLOCK
from fedpriv.federation.secagg.protocol import Client, Session, forward, unmask
from fedpriv.federation.secagg.ring import Ring

GOAL = 0.5
"""Seconds of CPU a client, at 30 M parameters and 8 clients."""


def main() -> None:
    """Runs the benchmark and prints a table."""
    options = _options()
    jobs = contenders(options.size, options.clients, options.flower_size)
    for job in jobs.values():
        job(warm_up=True)
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(options.repeats):
        for name, job in jobs.items():
            seconds[name].append(job())
    show(seconds, options)
    if options.json:
        _write(seconds, options)


def contenders(size: int, count: int, flower_size: int) -> dict[str, Callable[..., float]]:
    """Returns the things to measure by name; each takes its CPU seconds when called."""
    session = Session(round=1, attempt=0, threshold=count // 2 + 1)
    clients = [Client(session, u, hashlib.sha256(b"client %d" % u).digest()) for u in range(count)]
    roster = {client.number: client.advertise() for client in clients}
    boxes = forward({client.number: client.share(roster) for client in clients})
    everybody = set(boxes)
    ring = Ring.fitting(1.0, count)
    values = np.random.default_rng(0).standard_normal(size).astype(np.float32) * np.float32(0.1)
    vector = torch.from_numpy(values)
    middle = clients[count // 2]

    def keys() -> None:
        middle.advertise()
        middle.share(roster)
        middle.reveal(roster, boxes[middle.number], everybody)

    def unmasking(survivors: set[int]) -> Callable[[], object]:
        answers = [clients[u].reveal(roster, boxes[u], survivors) for u in survivors]
        total = np.zeros(size, np.uint32)
        return lambda: unmask(session, roster, everybody, survivors, total, answers)

    jobs = {
        "masking": _timed(lambda: middle.mask(roster, everybody, vector, ring)),
        "keys": _timed(keys),
        "copy": _timed(values.copy),
        "ChaCha20 alone": _timed(lambda: _streams(size, count, _chacha)),
        "AES-128-CTR alone": _timed(lambda: _streams(size, count, _aes)),
        "unmask, 0 dropped": _timed(unmasking(everybody)),
        "unmask, 1 dropped": _timed(unmasking(everybody - {0})),
    }
    flower = _flower(values[:flower_size], count)
    if flower is not None:
        jobs["Flower SecAgg+"] = _timed(flower, scale=size / min(flower_size, size))
    return jobs


def show(seconds: dict[str, list[float]], options: argparse.Namespace) -> None:
    """Prints the table, with how many times as long as masking everything takes."""
    print(
        f"{options.size:,} parameters, {options.clients} clients, {options.repeats} repeats; "
        f"load {os.getloadavg()[0]:.2f}; {_machine()}\n"
    )
    print(f"{'':20} {'CPU seconds':>24}   {'ratio to masking':>24}")
    for name, taken in seconds.items():
        ratios = [a / b for a, b in zip(taken, seconds["masking"], strict=True)]
        print(f"{name:20} {_spread(taken):>24}   {_spread(ratios):>24}")
    if "Flower SecAgg+" not in seconds:
        print("Flower's SecAgg+ primitives are not where they were: skipped")
    else:
        print(f"(Flower at {min(options.flower_size, options.size):,} parameters, scaled)")
    if (options.size, options.clients) == (30_000_000, 8):
        median = statistics.median(seconds["masking"])
        verdict = "met" if median <= GOAL else "MISSED"
        print(f"\ngoal: masking <= {GOAL} s a client: {verdict} ({median:.3f} s)")


def _timed(job: Callable[[], object], scale: float = 1.0) -> Callable[..., float]:
    def run(warm_up: bool = False) -> float:
        began = time.process_time()
        job()
        return 0.0 if warm_up else (time.process_time() - began) * scale

    return run


def _chacha(number: int) -> Cipher:
    return Cipher(algorithms.ChaCha20(bytes([number]) * 32, bytes(16)), mode=None)


def _aes(number: int) -> Cipher:
    return Cipher(algorithms.AES(bytes([number]) * 16), modes.CTR(bytes(16)))


def _streams(size: int, count: int, cipher: Callable[[int], Cipher]) -> None:
    streams = [cipher(number).encryptor() for number in range(count)]
    zeros, words = memoryview(bytes(4 * BLOCK)), bytearray(4 * BLOCK)
    for start in range(0, size, BLOCK):
        part = zeros[: 4 * min(BLOCK, size - start)]
        for stream in streams:
            stream.update_into(part, words)


def _flower(values: np.ndarray, count: int) -> Callable[[], object] | None:
    try:
        from flwr.common.secure_aggregation.quantization import quantize
        from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
    except ImportError:
        return None

    def run() -> object:
        (masked,) = quantize([values], 1.0, 1 << 22)
        for number in range(count):
            (mask,) = pseudo_rand_gen(bytes([number]) * 32, 1 << 32, [values.shape])
            masked = masked + mask if number % 2 else masked - mask
        return masked % (1 << 32)

    return run


def _spread(numbers: list[float]) -> str:
    median, least, most = statistics.median(numbers), min(numbers), max(numbers)
    return f"{median:.3g} ({least:.3g}-{most:.3g})"


def _machine() -> str:
    versions = f"cryptography {cryptography.__version__}, NumPy {np.__version__}"
    return f"Python {platform.python_version()}, {versions}, {platform.machine()}"


def _write(seconds: dict[str, list[float]], options: argparse.Namespace) -> None:
    result = {"options": vars(options), "machine": _machine(), "seconds": seconds}
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=30_000_000, help="parameters")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--flower-size", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="100,000 parameters, 2 repeats")
    parser.add_argument("--json", help="where to write every number")
    options = parser.parse_args()
    if options.quick:
        options.size, options.repeats, options.flower_size = 100_000, 2, 100_000
    return options


if __name__ == "__main__":
    main()
