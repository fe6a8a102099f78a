"""Where images come from: a name, a folder, an archive or any `Dataset`, and how they are loaded in batches."""

from entrec.data.batches import Batches, Draw, in_order
from entrec.data.files import EXTENSIONS, CorruptImage, Files, NothingReadable
from entrec.data.held import Held
from entrec.data.loader import Batch, loader
from entrec.data.opening import NAMES, Data, open_source
from entrec.data.shapes import Rendered, render
from entrec.data.source import Image, Source, ViewFacts

__all__ = [
    "EXTENSIONS",
    "NAMES",
    "Batch",
    "Batches",
    "CorruptImage",
    "Data",
    "Draw",
    "Files",
    "Held",
    "Image",
    "NothingReadable",
    "Rendered",
    "Source",
    "ViewFacts",
    "in_order",
    "loader",
    "open_source",
    "render",
]
