"""The rows of a data set as Arrow files, which every process opens for itself."""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedpriv.data.document import DataError, check_file, found_in
from fedpriv.data.folder.page_file import MOST_BYTES
from fedpriv.data.paths import inside
from fedpriv.data.reading import read_json, shown
from fedpriv.runtime.cache import file_stamp, hash_of, private_folder
from fedpriv.runtime.file_names import name_problem

SAVED = ("dataset_dict.json", "state.json")
"""Files that `save_to_disk` writes, of several splits and of one."""
BUILDERS = ("arrow", "csv", "imagefolder", "json", "parquet")
"""What datasets may read files with: others, such as webdataset, unpickle what they find."""

MOST_FILES = 1_000_000
"""Below the folder of a data set; more is somebody's disk."""


class NoDatasetsError(ValueError):
    """The datasets library is not installed."""


@dataclass(frozen=True, slots=True)
class HubTable:
    """A split of a data set.

    Attributes:
        split: its name; "" if the data set has none.
        files: the Arrow files with its rows, in their order.
        stamp: a hash of their places, sizes and times.
        root: the folder of the data set, in which images named by a path must lie; "" for one of
            the hub, whose images must lie in the caches of Hugging Face.
    """

    split: str
    files: tuple[str, ...]
    stamp: str
    root: str

    def row(self, number: int, names: tuple[str, ...]) -> dict[str, Any]:
        """Returns the values of some columns of a row; images as they are stored."""
        return _opened(self, names)[number]  # type: ignore[no-any-return]

    def features(self) -> Mapping[str, Any]:
        """Returns the feature of each column."""
        return _opened(self, None).features  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(_opened(self, None))

    def picture(self, value: Any) -> bytes:
        """Returns the content of an image.

        Args:
            value: as the column has it: bytes, a path, or a mapping with either.

        Raises:
            ValueError: if there is none, or a path leads out of the data set.
        """
        content = value.get("bytes") if isinstance(value, Mapping) else None
        if content is not None:
            return bytes(content)
        path = value.get("path") if isinstance(value, Mapping) else value
        if not isinstance(path, str) or not path:
            raise ValueError(f"expected an image, found {shown(value)}")
        file = self._file(path)
        check_file(file)
        if (size := file.stat().st_size) > MOST_BYTES:
            raise ValueError(f"{size:,} bytes: expected at most {MOST_BYTES:,}")
        return file.read_bytes()

    def _file(self, path: str) -> Path:
        if not os.path.isabs(path):
            if not self.root:
                raise ValueError(f"{shown(path)} is not in the data set")
            return inside(Path(self.root), path)
        for home in [Path(self.root)] if self.root else _caches():
            relative = os.path.relpath(path, home.absolute())
            if not relative.startswith(".."):
                return inside(home, relative)
        raise ValueError(f"{shown(path)} lies outside of the data set; nothing was read")


def open_tables(path: str, name: str | None, revision: str | None) -> list[HubTable]:
    """Returns the splits of a data set, with their rows on disk.

    Args:
        path: a folder that `save_to_disk` wrote, a folder with files that `datasets` reads
            (Parquet, JSON lines, CSV, pictures), or the name of a data set on the hub.
        name: of its configuration, if it has several.
        revision: of the hub: a branch, a tag or a commit.

    Raises:
        DataError: if there is none, or it cannot be read.
        NoDatasetsError: if the library is not installed.
    """
    try:
        import datasets
    except ImportError as error:
        raise NoDatasetsError(
            "data=hf needs the datasets library: pip install 'fedpriv[datasets]'"
        ) from error
    folder = Path(path)
    is_folder = folder.is_dir()
    if not is_folder and not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", path):
        raise DataError(path, "expected a folder, or a name on the hub such as nielsr/funsd")
    try:
        datasets.disable_progress_bars()
        if is_folder and any((folder / file).is_file() for file in SAVED):
            _check_state(folder)
            found = datasets.load_from_disk(str(folder.absolute()), keep_in_memory=False)
        else:
            # What is read of a folder here is kept where all that is private is kept.
            cache = str(private_folder("datasets")) if is_folder else None
            where = str(folder.resolve()) if is_folder else path
            if is_folder:
                _check_cards(folder)
                _check_number(folder)
            builder = datasets.load_dataset_builder(where, name, revision=revision, cache_dir=cache)
            kind = type(builder).__module__.rpartition(".")[2]
            if kind not in BUILDERS:
                raise DataError(
                    path, f"datasets reads it as {kind}: expected one of {', '.join(BUILDERS)}"
                )
            if is_folder:
                _check_files(folder, builder)
            builder.download_and_prepare()
            found = builder.as_dataset()
    except (DataError, MemoryError):
        raise
    except Exception as error:  # the library raises errors of many others
        if isinstance(error, RecursionError):
            raise DataError(
                path, "folders lie too deep in it: name that of the data set"
            ) from error
        missing = "" if is_folder else f"; there is no folder {path}"
        why = (str(error).strip().splitlines() or [""])[0]
        raise DataError(
            path, f"datasets cannot read it: {type(error).__name__}: {why}{missing}"
        ) from error
    splits = found if isinstance(found, dict) else {str(found.split or ""): found}
    root = str(folder.absolute()) if is_folder else ""
    tables: list[HubTable] = []
    for split, rows in splits.items():
        if len(rows):
            files = tuple(one["filename"] for one in rows.cache_files)
            stamp = hash_of([file_stamp(Path(file)) for file in files])
            tables.append(HubTable(str(split), files, stamp, root))
    for table in tables:
        if len(table) != len(splits[table.split]):
            why = f"{table.split or 'it'} is a selection of rows: save it with save_to_disk"
            raise DataError(path, why)
    return tables


def _check_state(folder: Path) -> None:
    """Refuses a saved data set whose list of files leads out of it."""
    top = folder / SAVED[0]
    if not top.is_file():
        parts = [folder]
    else:
        content = read_json(top)
        named = content.get("splits") if isinstance(content, dict) else None
        if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
            raise DataError(top, f"expected a list of splits, found {shown(content)}")
        parts = [inside(folder, one) for one in named]
    for part in parts:
        state = part / SAVED[1]
        content = read_json(state)
        files = content.get("_data_files") if isinstance(content, dict) else None
        if not isinstance(files, list):
            raise DataError(state, f"expected a list of files; {found_in(part)}")
        for file in files:
            named = file.get("filename") if isinstance(file, dict) else None
            check_file(inside(part, named if isinstance(named, str) else ""))


def _check_cards(folder: Path) -> None:
    """Refuses a folder whose own words name files elsewhere, for which datasets would ask at once.

    They stand in the README's head and in a YAML file, which are read as datasets reads them: with
    a byte order mark, for one.
    """
    from datasets import config
    from huggingface_hub import DatasetCard

    for name in (config.REPOCARD_FILENAME, config.REPOYAML_FILENAME):
        card = folder / name
        if not card.exists():
            continue
        check_file(card)
        try:
            if name == config.REPOCARD_FILENAME:
                told = DatasetCard.load(card, ignore_metadata_errors=True).data.to_dict()
            else:
                told = yaml.safe_load(card.read_text("utf-8"))
        except (RecursionError, ValueError, yaml.YAMLError) as error:
            why = f"its head is not YAML that can be read: {error!r:.200}"
            raise DataError(card, why) from error
        left, seen = [told.get("configs") if isinstance(told, dict) else None], set[int]()
        while left:
            one = left.pop()
            if isinstance(one, dict | list | tuple):
                if id(one) not in seen:  # YAML may say the same again and again
                    seen.add(id(one))
                    left += [*one, *one.values()] if isinstance(one, dict) else one
            elif isinstance(one, str) and one and ("://" in one or name_problem(one)):
                raise DataError(card, f"{shown(one)} lies outside of the folder; nothing was read")


def _check_number(folder: Path) -> None:
    """Refuses a folder of so many files that it is hardly a data set's, before all are looked at.

    Raises:
        DataError: if there are more below it than `MOST_FILES`.
    """
    files = (1 for _, _, names in os.walk(folder) for _ in names)
    if sum(itertools.islice(files, MOST_FILES + 1)) > MOST_FILES:
        why = f"more than {MOST_FILES:,} files lie below it: name the folder of the data set itself"
        raise DataError(folder, why)


def _check_files(folder: Path, builder: Any) -> None:
    """Refuses a folder whose own description names files outside of it."""
    home = folder.resolve()
    for files in (builder.config.data_files or {}).values():
        for file in files:
            if home not in Path(str(file)).resolve().parents:
                raise DataError(folder, f"{shown(str(file))} lies outside of it; nothing was read")


def _caches() -> list[Path]:
    from datasets import config
    from huggingface_hub.constants import HF_HUB_CACHE

    return [Path(config.HF_DATASETS_CACHE), Path(HF_HUB_CACHE)]


@functools.lru_cache(maxsize=16)
def _opened(table: HubTable, names: tuple[str, ...] | None) -> Any:
    import datasets

    rows = datasets.concatenate_datasets([datasets.Dataset.from_file(file) for file in table.files])
    if names is not None:
        rows = rows.select_columns(list(names))
        for name, feature in rows.features.items():
            if isinstance(feature, datasets.Image):
                rows = rows.cast_column(name, datasets.Image(decode=False))
    return rows
