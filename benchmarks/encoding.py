"""What the cache of encoded pages saves: binding the same data to a model twice.

    python benchmarks/encoding.py --documents 200 --image-size 224

Pages are image files of 1000 × 1400 pixels, as scans are, or pixels in memory. The first bind
decodes and encodes; the second, which is what every later run and every sweep pays, maps files. The
generating of the pages is in neither.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from fedpriv.data.document import Document, DocumentSet
from fedpriv.data.federated import DocumentData
from fedpriv.data.partition import ByProvider
from fedpriv.data.synthetic import Invoices
from fedpriv.models.layoutlmv3 import layoutlmv3_tiny

PER_PROVIDER = 10
SCAN = (1000, 1400)


@dataclass(frozen=True)
class Loaded:
    """Documents that are already there."""

    documents: DocumentSet

    def load(self) -> DocumentSet:
        """Returns them."""
        return self.documents


def as_file(document: Document, folder: Path) -> Document:
    """Returns the document with its page in an image file."""
    path = folder / f"{document.id}.png"
    document.image().resize(SCAN, Image.Resampling.BILINEAR).save(path)
    return dataclasses.replace(document, page=path)


def seconds(documents: DocumentSet, image_size: int, cache: Path) -> float:
    """Returns how long one bind takes."""
    data = DocumentData(Loaded(documents), ByProvider(clients=4), cache=cache)
    began = time.perf_counter()
    data.bind(functools.partial(layoutlmv3_tiny, image_size=image_size), seed=0)
    return time.perf_counter() - began


def main() -> None:
    """Prints a line for pages in files and one for pages in memory."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--image-size", type=int, default=224)
    options = parser.parse_args()
    providers = max(4, options.documents // PER_PROVIDER)
    drawn = Invoices(providers=providers, documents_per_provider=PER_PROVIDER).load()
    with tempfile.TemporaryDirectory() as folder:
        files = tuple(as_file(document, Path(folder)) for document in drawn.documents)
        kinds = {"files": dataclasses.replace(drawn, documents=files), "memory": drawn}
        for kind, documents in kinds.items():
            cache = Path(folder) / "cache" / kind
            first, *later = (seconds(documents, options.image_size, cache) for _ in range(4))
            again = min(later)
            print(
                f"pages in {kind}: {len(documents.documents)} documents, first {first:.2f} s, "
                f"again {again:.2f} s, {first / again:.1f} times as fast"
            )


if __name__ == "__main__":
    main()
