"""Mutation testing: do the tests notice a small wrong change to the code?

    pip install cosmic-ray coverage
    python tests/mutants.py map before              # every test once: which lines it runs, how long
    python tests/mutants.py try before --count 500  # mutants drawn by seed; goes on where it was
    python tests/mutants.py try after --like before  # the same mutants, with the tests of today
    python tests/mutants.py table before after

Mutants are cosmic-ray's, one at each of some places drawn at random, annotations left alone. Each
is tried in a copy of the checkout, in a process forked from one that has imported torch and the
like, with the tests that run its line, the nearest first. A line that a shared fixture runs counts
for every test that asks for it. What no test has noticed within `--seconds` of tests has survived.
"""

import argparse
import ast
import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "mutants"
ROOMS = (
    "fedpriv/privacy",
    "strategies",
    "clients",
    "fedpriv/federation",
    "fedpriv/threat/scoring",
)
KILLED, TIMEOUT, SURVIVED, GONE = "killed", "timeout", "survived", "code is gone"
NOTICED = (KILLED, TIMEOUT)
SAME = ("operator", "column", "text")


class Covering:
    """A pytest plugin that notes which test runs which line, and how long each takes."""

    def __init__(self, folder):
        import coverage

        self.folder, self.name = folder, os.environ.get("PYTEST_XDIST_WORKER", "main")
        self.where, self.asks, self.seconds, self.failed = [""], {}, Counter(), []
        self.coverage = coverage.Coverage(
            str(folder / f".coverage.{self.name}"),
            config_file=False,
            include=[f"{ROOT}/{room}/*" for room in ROOMS],
        )
        self.coverage.start()

    @contextlib.contextmanager
    def context(self, name):
        self.where.append(name)
        self.coverage.switch_context(name)
        yield
        self.where.pop()
        self.coverage.switch_context(self.where[-1])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        shared = (known[-1] for known in item._fixtureinfo.name2fixturedefs.values())
        self.asks[item.nodeid] = [shared_name(one) for one in shared if one.scope != "function"]
        with self.context(item.nodeid):
            yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        of_a_test = fixturedef.scope == "function"
        with contextlib.nullcontext() if of_a_test else self.context(shared_name(fixturedef)):
            yield

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_sessionfinish(self):
        self.coverage.stop()
        self.coverage.save()
        noted = {"asks": self.asks, "seconds": self.seconds, "failed": self.failed}
        ours = ("fedpriv", "tests", "test_", "toy", "conftest", "__main__", "mutants")
        modules = sorted(name for name in sys.modules if not name.startswith(ours))
        noted["modules"] = [name for name in modules if not is_in_tests(sys.modules[name])]
        (self.folder / f"tests.{self.name}.json").write_text(json.dumps(noted))


def shared_name(fixturedef):
    return f"fixture {fixturedef.argname} of {fixturedef.baseid}"


def is_in_tests(module):
    return str(getattr(module, "__file__", "") or "").startswith(f"{ROOT}/tests")


def pytest_configure(config):
    """As the plugin of `map`: measures where tests run, in a worker if there are some."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Covering(Path(os.environ["COVERING"])))


def make_map(folder, selected):
    """Runs every test once under coverage."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = {**os.environ, "CI": "1", "COVERING": str(folder)}
    environment["PYTHONPATH"] = f"{ROOT / 'tests'}{os.pathsep}{ROOT}"
    command = ["-m", "pytest", "-p", "mutants", "-n", "2", "--dist", "worksteal", "-m", selected]
    subprocess.run([sys.executable, *command, "-q"], cwd=ROOT, env=environment)


class Map:
    """Which tests run which line, and how long they take."""

    def __init__(self, folder):
        from coverage import CoverageData

        noted = [json.loads(path.read_text()) for path in folder.glob("tests.*.json")]
        failed = {test for one in noted for test in one["failed"]}
        self.modules = sorted({name for one in noted for name in one["modules"]})
        self.seconds = {
            test: seconds
            for one in noted
            for test, seconds in one["seconds"].items()
            if test not in failed
        }
        asking = defaultdict(set)
        for one in noted:
            for test, fixtures in one["asks"].items():
                for fixture in fixtures:
                    asking[fixture].add(test)
        data = CoverageData(str(folder / ".coverage"))
        for path in folder.glob(".coverage.*"):
            worker = CoverageData(str(path))
            worker.read()
            data.update(worker)
        self.lines = {}
        for file in data.measured_files():
            room = next(room for room in ROOMS if f"/{room}/" in file)
            path = room + file.rpartition(f"/{room}")[2]
            self.lines[path] = {
                line: {t for c in contexts if c for t in asking.get(c, {c}) if t in self.seconds}
                for line, contexts in data.contexts_by_lineno(file).items()
            }

    def tests(self, mutant):
        """Returns the tests that run the line, else the file, by file of tests."""
        lines = self.lines.get(mutant["path"], {})
        found = lines.get(mutant["line"]) or lines.get(mutant["statement"])
        found = found or {test for tests in lines.values() for test in tests}
        files = defaultdict(list)
        for test in sorted(found, key=self.seconds.__getitem__):
            files[test.partition("::")[0]].append(test)
        return files

    def order(self, mutant, first, limit):
        """Returns the tests in batches: who killed it before, the nearest files, the others."""
        files, module = self.tests(mutant), Path(mutant["path"])
        words = {module.stem, module.stem.replace("_", ""), *module.parts[:-1]}

        def far(file):
            near = sum(word in file for word in words) + 3 * (module.stem in Path(file).stem)
            return -near, sum(self.seconds[t] for t in files[file])

        ordered = sorted(files, key=far)
        batches, left = [[first]] if first in self.seconds else [], limit
        near, rest = ordered[:2], ordered[2:]
        for group in (near, rest):
            batch = []
            for test in (t for file in group for t in files[file]):
                if self.seconds[test] <= left:
                    left -= self.seconds[test]
                    batch.append(test)
            batches += [batch] if batch else []
        return batches


def places(path):
    """Yields every mutant of a file but those of annotations."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    source = (ROOT / path).read_text()
    tree, lines = ast.parse(source), source.splitlines()
    hints = [
        (hint.lineno, hint.col_offset, hint.end_lineno, hint.end_col_offset)
        for node in ast.walk(tree)
        for hint in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(hint, ast.expr)
    ]
    statements = sorted(node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt))
    parsed = get_ast(source)
    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments() or "RemoveDecorator" in name:
            continue
        found = (p for node in ast_nodes(parsed) for p in operator().mutation_positions(node))
        for occurrence, (start, _) in enumerate(found):
            if any((a, b) <= start < (c, d) for a, b, c, d in hints):
                continue
            line, column = start
            yield {
                "path": path,
                "operator": name,
                "occurrence": occurrence,
                "line": line,
                "column": column,
                "statement": max(s for s in statements if s <= line),
                "text": lines[line - 1].strip(),
            }


def drawn(count, seed):
    """Returns mutants at `count` places drawn from all rooms, one of each place's."""
    by_place = defaultdict(list)
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            for mutant in places(str(file.relative_to(ROOT))):
                by_place[mutant["path"], mutant["line"], mutant["column"]].append(mutant)
    rng = random.Random(seed)
    places_drawn = rng.sample(sorted(by_place), count)
    return [
        {"number": number, **rng.choice(by_place[place])}
        for number, place in enumerate(places_drawn)
    ]


def found_again(mutant):
    """Returns the same mutant in the code of today, where lines may have moved, or None."""
    if not (ROOT / mutant["path"]).exists():
        return None
    same = [m for m in places(mutant["path"]) if all(m[k] == mutant[k] for k in SAME)]
    nearest = min(same, key=lambda m: abs(m["line"] - mutant["line"]), default=None)
    return nearest and {"number": mutant["number"], **nearest}


def copy_of_the_checkout(folder):
    """Returns a copy whose tests and modules are compiled, so that no child has to do it."""
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(folder)], check=True)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", ""]
    subprocess.run(collect, cwd=folder, env=environment, stdout=subprocess.DEVNULL)


class Noticed:
    """A pytest plugin that writes down the first test that fails."""

    def __init__(self, file):
        self.file = file

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.file.write_text(report.nodeid)

    def pytest_collectreport(self, report):
        if report.failed:
            self.file.write_text(f"collecting {report.nodeid}")


def run_tests(copy, tests, log, killer):
    """In a forked child: runs the tests in a copy of the checkout and ends the process."""
    os.setsid()
    os.chdir(copy)
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "CI": "1"}
    sys.path[:0] = [str(copy)]
    with log.open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={copy}.tmp"]
    status = pytest.main(["-x", "-q", "--tb=short", *plugins, *tests], plugins=[Noticed(killer)])
    sys.stdout.flush()
    os._exit(int(status))


class Trial:
    """One mutant on its way through its batches of tests."""

    def __init__(self, mutant, batches, copy, seconds):
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        self.mutant, self.batches, self.copy, self.seconds = mutant, batches, copy, seconds
        self.file, self.killer = copy / mutant["path"], Path(f"{copy}.killer")
        self.original, self.began = self.file.read_text(), time.monotonic()
        operator = get_operator(mutant["operator"])()
        mutated = mutate_code(self.original, operator, mutant["occurrence"])
        self.file.write_text(mutated)
        changed = zip(self.original.splitlines(), mutated.splitlines(), strict=False)
        self.change = next((new.strip() for old, new in changed if old != new), "")
        self.killer.unlink(missing_ok=True)
        self.next_batch()

    def next_batch(self):
        tests = self.batches.pop(0)
        self.until = time.monotonic() + 90 + 6 * sum(self.seconds.get(t, 1) for t in tests)
        self.pid = os.fork()
        if not self.pid:
            run_tests(self.copy, tests, Path(f"{self.copy}.log"), self.killer)

    def outcome(self):
        """Returns what became of it, or None while tests run."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            if time.monotonic() < self.until:
                return None
            self.end()
            os.waitpid(self.pid, 0)
            return self.ended(TIMEOUT)
        self.end()
        if os.waitstatus_to_exitcode(status):
            return self.ended(KILLED)
        if self.batches:
            self.next_batch()
            return None
        return self.ended(SURVIVED)

    def end(self):
        """Ends the process and what its tests have started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def ended(self, outcome):
        self.file.write_text(self.original)
        killer = self.killer.read_text() if self.killer.exists() else ""
        took = round(time.monotonic() - self.began, 1)
        told = {"change": self.change, "outcome": outcome, "killer": killer, "took": took}
        return {**self.mutant, **told}


def try_mutants(folder, mutants, seconds, jobs, killers):
    """Tries each mutant that has no result yet and adds what became of it to results.jsonl."""
    known, results = Map(folder), folder / "results.jsonl"
    done = {one["number"] for one in results_of(folder)}
    for name in known.modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if any(name.split(".")[0] == "fedpriv" for name in sys.modules):
        raise SystemExit("fedpriv is imported before any mutant is made")
    copies = [folder / f"copy-{n}" for n in range(jobs)]
    for copy in copies:
        if not copy.exists():
            copy_of_the_checkout(copy)
        subprocess.run(["git", "checkout", "-q", "."], cwd=copy, check=True)
    waiting, running = [m for m in mutants if m["number"] not in done], {}
    with results.open("a") as out:

        def note(result):
            out.write(json.dumps(result) + "\n")
            out.flush()
            print(result["outcome"], result["path"], result["line"], flush=True)

        while waiting or running:
            for copy in copies:
                while copy not in running and waiting:
                    mutant = waiting.pop(0)
                    today = found_again(mutant)
                    first = killers.get(mutant["number"], "")
                    batches = known.order(today, first, seconds) if today else []
                    if batches:
                        running[copy] = Trial(today, batches, copy, known.seconds)
                    else:
                        note({**mutant, "outcome": SURVIVED if today else GONE, "killer": ""})
            for copy, trial in list(running.items()):
                if result := trial.outcome():
                    del running[copy]
                    note(result)
            time.sleep(0.02)


def results_of(folder):
    file = folder / "results.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def show_table(before, after):
    """Prints the outcomes by room, before and after, and every mutant that is no longer noticed."""
    now = {one["number"]: one for one in results_of(after)}
    rows = defaultdict(Counter)
    for one in results_of(before):
        room = next(room for room in ROOMS if one["path"].startswith(f"{room}/"))
        rows[room][one["outcome"], now[one["number"]]["outcome"]] += 1
    print("| room | mutants | noticed before | noticed after | noticed before, not after |")
    print("|---|---|---|---|---|")
    for room, counts in [*rows.items(), ("all", sum(rows.values(), Counter()))]:
        noticed = [sum(n for pair, n in counts.items() if pair[side] in NOTICED) for side in (0, 1)]
        lost = sum(n for (b, a), n in counts.items() if b in NOTICED and a == SURVIVED)
        print(f"| {room} | {counts.total()} | {noticed[0]} | {noticed[1]} | {lost} |")
    for one in results_of(before):
        if one["outcome"] in NOTICED and now[one["number"]]["outcome"] not in NOTICED:
            print(f"{one['path']}:{one['line']}: {one['text']}  →  {one['change']}")
            print(f"    was noticed by {one['killer']}: {now[one['number']]['outcome']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    mapping = commands.add_parser("map")
    mapping.add_argument("suite")
    mapping.add_argument("--select", default="not base", help="pytest's -m")
    trying = commands.add_parser("try")
    trying.add_argument("suite")
    trying.add_argument("--like", help="a suite whose mutants are tried, what killed them first")
    trying.add_argument("--count", type=int, default=500)
    trying.add_argument("--seed", type=int, default=1)
    trying.add_argument("--seconds", type=float, default=60, help="of tests for each mutant")
    trying.add_argument("--jobs", type=int, default=2)
    table = commands.add_parser("table")
    table.add_argument("before")
    table.add_argument("after")
    asked = parser.parse_args()
    if asked.command == "map":
        make_map(BUILD / asked.suite, asked.select)
    elif asked.command == "try":
        like = results_of(BUILD / asked.like) if asked.like else []
        mutants = sorted(like, key=lambda m: m["number"]) or drawn(asked.count, asked.seed)
        killers = {one["number"]: one["killer"] for one in like}
        try_mutants(BUILD / asked.suite, mutants, asked.seconds, asked.jobs, killers)
    else:
        show_table(BUILD / asked.before, BUILD / asked.after)


if __name__ == "__main__":
    main()
