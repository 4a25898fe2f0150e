"""No name out of a file is joined to a path but by `inside`: a list of what else is joined.

A plan, a table of results or a partition may be somebody else's, and a name in it may climb out of
its folder. So in the rooms that read such files, a path is joined to constants, or to what is
listed here with the reason why it is no name out of a file.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("studies", "report", "threat", "config", "cli", "federation")
OURS = {
    "run.folder / name": "of two constants",
    "folder / name": "of two constants, or a name of `recognise`, of our lists",
    "folder / f'figure.{kind}'": "kinds are ours",
    "Path(config['runs']) / 'assess' / str(config['name'])": "typed, and checked by check_name",
    "self.path / trial.name": "a digest, or of variants that this process has planned",
    "self.place(trial) / ends.get(part, f'{FINDINGS}/{part}/{RESULT}')": "letters and a digest",
    "cache_folder() / 'costs' / f'{json_digest(about)}.json'": "a digest",
    "folder / f'{name}.yaml'": "typed: the name of an experiment",
    "Path(table.runs) / 'sweeps' / Path(table.name).parent": "of a table of ours",
    "place / TRAINED / versions.code()[:12]": "a digest",
    "Path(runs) / 'sweeps' / PAPERS[paper].folder": "ours",
    "Path(one.run) / one.findings": "of a sweep that this process has made",
    "self.path / RETRAINED / name": "of variants that this process has planned",
    "self.path / RETRAINED / name / file": "the same",
    "path.parent / f\"{file.pop('like')}.yaml\"": "an experiment file is code",
    "files[-1].parent / f'{like}.yaml'": "the same",
    "Path(sweep.runs) / 'sweeps' / sweep.name": "of a sweep's file, which is code",
    "folder.path / RETRAINED / name": "behind `inside` in the line above, of names of the folder",
    "folder / f'{_digest(model)}.jsonl'": "a digest",
    "folder.path / TRANSCRIPT / name": "for a message",
    "folder.path / place": "for a message",
    "folder / str(client)": "a number",
    "folder.path / FINDINGS / order.name": "checked by check_name",
    "least[self.place] / least.sum()": "numbers",
    "cache / name": "of names in the cache",
    "Path(folder) / name": "of names in the temporary folder",
    "Path(scratch) / target.name": "typed",
    "folder / table": "of our list",
    "folder / state": "of our list",
    "root / RETRAINED / name": "of names that `run_files.names` lists",
}
PATHS = ("path", "folder", "root", "place", "home", "parent", "cache", "scratch", "where")


def joined():
    """Yields file and text of every path that is joined to more than constants."""
    for room in ROOMS:
        for file in sorted((ROOT / "fedpriv" / room).rglob("*.py")):
            tree = ast.parse(file.read_text("utf-8"))
            inner = {node.left for node in ast.walk(tree) if isinstance(node, ast.BinOp)}
            for node in ast.walk(tree):
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                    if node in inner and isinstance(node.right, ast.Constant | ast.Name):
                        continue  # a part of a longer one
                    left = ast.unparse(node.left).lower()
                    plain = (
                        isinstance(node.right, ast.Constant) or ast.unparse(node.right).isupper()
                    )
                    dotted = ast.unparse(node.right).rpartition(".")[2].isupper()
                    if any(word in left for word in PATHS) and not plain and not dotted:
                        yield file.relative_to(ROOT), ast.unparse(node)


def test_paths_are_joined_to_names_of_ours_only():
    found = list(joined())
    ours = {ast.unparse(ast.parse(text)) for text in OURS}  # Pythons differ in their quotes
    assert [(str(file), text) for file, text in found if text not in ours] == []
    assert ours - {text for _, text in found} == set()
