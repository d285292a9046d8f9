"""Short codes for vectors: learned in one pass over a stream, searched by Hamming or estimated distance.

>>> import numpy as np, frosh
>>> X = np.random.default_rng(0).standard_normal((2000, 32), dtype=np.float32)
>>> hasher = frosh.Hasher(n_bits=16).fit(X)
>>> hasher.transform(X).shape          # packed bits, 2 bytes for each row
(2000, 2)
>>> ids, distances = hasher.encode(X).search(X[:3], k=5)
>>> ids.shape
(3, 5)

`Hasher` (sign bits) and `Quantizer` (more accuracy a byte, slower to encode) follow scikit-learn's conventions; `load` reads
a model file of either kind. `Sketch` is what travels between machines and is merged. `Index` keeps codes, ids and vectors
in a folder. `read` gives batches of any file that the `frosh` program reads, and `evaluate` measures codes. Adapters for
Spark, Dask and Ray are in `frosh.spark`, `frosh.dask` and `frosh.ray`.
"""

from ._bits import pack, swap_bit_order, unpack
from ._codes import Codes
from ._conventions import NotFittedError
from ._evaluate import evaluate, exact_neighbours
from ._hasher import Hasher
from ._index import Index
from ._models import load
from ._quantizer import Quantizer
from ._read import VectorFile, read
from ._sketch import Sketch

__all__ = [
    "Codes",
    "Hasher",
    "Index",
    "NotFittedError",
    "Quantizer",
    "Sketch",
    "VectorFile",
    "evaluate",
    "exact_neighbours",
    "load",
    "pack",
    "read",
    "swap_bit_order",
    "unpack",
]
__version__ = "0.1.0"
