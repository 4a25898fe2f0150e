"""A Ray session for one user on one machine, which ends with its driver.

By default, Ray listens on every interface, keeps logs and sockets in a folder that it never
removes, and before version 2.59 authenticates nobody: any process that reaches one of its ports can
run code in a worker. Here it listens on the loopback interface only, demands a token that is drawn
for each session and that only this user can read, and keeps its files in a separate folder. That
folder is removed when the session ends, or by `fedpriv.runtime.workers.watchdog` when the driver is
killed.

A cluster that somebody else has started (`ray.address`) keeps its own address, token and folders.
This file uses internals of Ray, in `_start` and `_set_environment`, and `_start` checks their
effect before any client is served.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fedpriv.runtime.outside import ServiceSetting
from fedpriv.runtime.refusals import Failed
from fedpriv.runtime.workers.watchdog import clear, remove, watch

PREFIX = "fedpriv-ray-"
"""Prefix of the folders of sessions."""

DRIVER = "driver"
"""The file in a session's folder that its driver keeps locked while it lives."""

LONGEST = 40
"""Characters of a session's folder: Ray appends up to 66, and a socket's path has 107 at most."""

START_SECONDS = 120
"""Time for Ray's own processes to start. Ray's default of 30 is short for a busy machine."""

START_TIMEOUTS = (
    "RAY_raylet_start_wait_time_s",
    "RAY_gcs_server_port_wait_time_s",
    "RAY_worker_register_timeout_seconds",
)
"""Variables that set it, unless the user has set them."""


@dataclass(frozen=True)
class RaySettings:
    """Whether and where workers run on Ray, for `Settings.workers` ≥ 1.

    Args:
        address: the address of a Ray cluster that is running already, such as "auto" or
            "10.0.0.1:6379". None runs the workers on this machine.
        client_resources: the resources that one worker needs: num_cpus, num_gpus (a fraction
            shares a GPU), or names that the cluster defines. If any are given, and no address, the
            workers run on a Ray that is started on this machine; if none are given either, they
            run without Ray.
    """

    address: ServiceSetting | None = None
    client_resources: Mapping[str, float] = field(default_factory=dict)

    @property
    def wanted(self) -> bool:
        """Whether workers run on Ray."""
        return self.address is not None or bool(self.client_resources)


class RayDidNotStart(Failed):
    """Ray has not started on this machine."""


@dataclass(frozen=True)
class Session:
    """A Ray of ours.

    Attributes:
        folder: its files.
        lock: the descriptor of the `DRIVER` file.
        watchdog: the process that clears up if this one is killed.
        environment: the variables that were set for it, as they were before.
    """

    folder: Path
    lock: int
    watchdog: subprocess.Popen[bytes]
    environment: dict[str, str | None]


_session: Session | None = None  # Ray allows one to a process


def start_ray(workers: int, resources: dict[str, float], address: str | None) -> bool:
    """Starts or joins Ray unless the caller has.

    Args:
        workers: how many are to run at a time.
        resources: of each, ``num_cpus`` among them.
        address: of a cluster to join; None starts Ray here.

    Returns:
        Whether it is ours to end, with `stop_ray`.

    Raises:
        RayDidNotStart: if it does not come up, at the second try either.
        ValueError: if it can never give the workers what they ask for.
    """
    import ray

    if ray.is_initialized():
        _check_resources(workers, resources)
        return False
    # Ray runs workers at nice 15 by default: on a shared machine they lose to everything else.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address is not None:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    else:
        cpus = max(1, round(workers * resources["num_cpus"] + 0.5))
        for again in (True, False):
            try:
                _start(cpus)
                break
            except Exception as error:  # Ray raises bare ones
                _leave(clear)
                if again:
                    continue
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise RayDidNotStart(
                    f"Ray did not start, twice: {reason.rstrip('.')}. If this machine is busy, or "
                    "short of memory or of room in /dev/shm, start again when it is less so, or "
                    "with fewer workers. Without ray.client_resources, workers on this machine "
                    "need no Ray."
                ) from error
    try:
        _check_resources(workers, resources)
    except ValueError:
        stop_ray()
        raise
    return True


@contextmanager
def running_ray(
    workers: int, resources: Mapping[str, float], address: str | None
) -> Iterator[None]:
    """Starts Ray, or joins it, as `start_ray` does; ends it if it was started here.

    Args:
        workers: how many processes.
        resources: of each, beside one CPU.
        address: of an existing cluster.
    """
    own = start_ray(workers, {"num_cpus": 1.0, **resources}, address)
    try:
        yield
    finally:
        if own:
            stop_ray()


def stop_ray() -> None:
    """Leaves Ray, and if it was started here, ends it and removes its files."""
    _leave(remove)


def _check_resources(workers: int, resources: dict[str, float]) -> None:
    """Raises `ValueError` if Ray can never give so many workers what each asks for."""
    import ray

    names = {"num_cpus": "CPU", "num_gpus": "GPU"}
    offered = ray.cluster_resources()
    for key, amount in resources.items():
        have = offered.get(names.get(key, key), 0.0)
        if amount * workers > have:
            raise ValueError(
                f"ray.client_resources: {workers} workers × {key}={amount:g} need "
                f"{amount * workers:g}, Ray has {have:g}; ask for fewer workers or smaller shares"
            )


def parents() -> list[Path]:
    """Returns the folders in which sessions may have their folders, the preferred one first."""
    named = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()).resolve()
    return list(dict.fromkeys([named, Path("/tmp").resolve()]))  # noqa: S108 - mkdtemp below it


def in_use(folder: Path) -> bool:
    """Returns whether the driver of a session lives."""
    try:
        lock = os.open(folder / DRIVER, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _start(cpus: int) -> None:
    """Starts Ray as this file promises it.

    Raises:
        RuntimeError: if this version of Ray does not do as it is told.
    """
    global _session
    import ray
    from ray._private import ray_constants
    from ray._raylet import AuthenticationMode, get_authentication_mode  # type: ignore[attr-defined]

    room = LONGEST - len(PREFIX) - 9
    parent = next(path for path in parents() if len(str(path)) <= room)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))  # 0700, and nobody's before
    lock = os.open(folder / DRIVER, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    token = folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    patience = dict.fromkeys(START_TIMEOUTS, str(START_SECONDS))
    wanted = {
        **{name: os.environ.get(name, seconds) for name, seconds in patience.items()},
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": None,  # of a cluster, perhaps; it would be preferred to the file
        "RAY_AUTH_TOKEN_PATH": str(token),
    }
    before = {name: os.environ.get(name) for name in wanted}
    _session = Session(folder, lock, watch(folder), before)
    _set_environment(wanted)
    # Ray replaces a loopback address by that of an interface, except where it knows no clusters.
    clusters, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        ray.init(
            address="local",  # never one that a file in a folder for all users names
            num_cpus=cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _node_ip_address="127.0.0.1",
            _temp_dir=str(folder / "r"),  # below, as Ray opens it to everybody
        )
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = clusters
    host = ray.get_runtime_context().gcs_address.rpartition(":")[0].strip("[]")
    if not ipaddress.ip_address(host).is_loopback:
        raise RuntimeError(f"Ray {ray.__version__} listens on {host}, not on loopback alone.")
    if get_authentication_mode() != AuthenticationMode.TOKEN:
        raise RuntimeError(f"Ray {ray.__version__} asks for no token.")


def _leave(empty: Callable[[Path], object]) -> None:
    """Leaves Ray; ends the session that was started here, and empties its folder."""
    global _session
    import ray

    ray.shutdown()
    session, _session = _session, None
    if session is not None:
        empty(session.folder)
        session.watchdog.kill()
        session.watchdog.wait()
        os.close(session.lock)
        _set_environment(session.environment)


def _set_environment(variables: dict[str, str | None]) -> None:
    """Sets environment variables, or removes those that are None, and has Ray read them again."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
