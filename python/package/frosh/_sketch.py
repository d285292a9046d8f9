"""What was learned from rows: it takes more rows, merges with others, and fits models."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _native
from ._inputs import learning_values, pieces, row_count
from ._progress import Progress, reporting

if TYPE_CHECKING:
    from ._hasher import Hasher
    from ._quantizer import Quantizer


class Certificate(NamedTuple):
    """A bound on the error of a sketch: along any direction, the squared length lost is at most `removed`."""

    removed: float
    mass: float
    compressed: bool


class Sketch:
    """Learns from a stream of rows, in memory that does not grow with the stream.

    The same rows and settings give the same bytes, for any cut into batches and any number of threads, and the same
    bytes as the `frosh` program and the Rust library.

    Parameters
    ----------
    sketch_rows : int, optional
        Rows of the sketch: even, at least twice the bits of the hashers that will be fitted. By default 256 (for up to
        128 bits), but at most twice the dimension. A quantiser uses up to 256.
    method : {"frosh", "frosh-sparse", "osh", "lsh"}
        The algorithm that learns.
    metric : {"l2", "cosine"}
        How rows are compared.
    block_rows : int, optional
        Rows of a compressed block: a power of two.
    sample_rows : int
        Sampled rows, which rotations and the distance estimator are fitted to.
    seed : int
        Seed of all randomness.
    worker : int
        Number of this worker. Sketches that will be merged need different numbers.
    n_jobs : int, optional
        Threads: every core by default and for -1. It does not change results.

    Examples
    --------
    Two machines learn from their own rows; the sketches travel as bytes.

    >>> X = np.random.default_rng(0).standard_normal((3000, 32), dtype=np.float32)
    >>> here = frosh.Sketch(sketch_rows=32, worker=0).update(X[:1000])
    >>> there = frosh.Sketch(sketch_rows=32, worker=1).update(X[1000:2000]).update(X[2000:])
    >>> both = here.merge(frosh.Sketch.from_bytes(there.to_bytes()))
    >>> both.rows, both.workers
    (3000, (0, 1))
    >>> both.hasher(16).transform(X).shape
    (3000, 2)
    >>> both.quantizer(4).transform(X).shape         # 4 bytes a row
    (3000, 4)
    """

    def __init__(
        self,
        *,
        sketch_rows: int | None = None,
        method: str = "frosh",
        metric: str = "l2",
        block_rows: int | None = None,
        sample_rows: int = 16384,
        seed: int = 0,
        worker: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self._settings: dict[str, Any] = {
            "sketch_rows": sketch_rows,
            "method": method,
            "metric": metric,
            "block_rows": block_rows,
            "sample_rows": sample_rows,
            "seed": seed,
            "worker": worker,
            "n_jobs": n_jobs,
        }
        self._native = _native.Sketch(**self._settings)

    @classmethod
    def _of(cls, native: Any, n_jobs: int | None = None) -> Sketch:
        sketch = cls.__new__(cls)
        sketch._settings = {"n_jobs": n_jobs}
        sketch._native = native
        return sketch

    def update(self, X: Any, *, column: str | None = None, progress: Progress = None) -> Sketch:
        """Learns from rows. Returns the sketch itself.

        `X` is a matrix of NumPy, Arrow data, a data frame, a tensor on the CPU, or an iterator of such batches (also
        `frosh.read(path)`). `column` chooses a column of a table. If a row has a value that is not finite, the rows
        before it are learned, and the error has its number.
        """
        with reporting(progress, row_count(X), "learning") as report:
            for first, piece in pieces(X, column, start=learning_values(self.method, self.metric, self.sketch_rows)):
                self._native.update(piece, first)
                report(piece.shape[0])
        return self

    def merge(self, *others: Sketch, same_worker: bool = False) -> Sketch:
        """The sketch of the rows of this one and of others. The inputs are not changed; their order does not matter.

        `Sketch.merge(*parts)` merges a list. Sketches of the same worker number are refused, because their rows would
        often be the same ones; `same_worker=True` merges them nevertheless.
        """
        parts = [self, *others]
        for part in parts:
            if not isinstance(part, Sketch):
                raise TypeError(f"expected sketches, got {type(part).__name__}")
        if not same_worker:
            seen: set[int] = set()
            for part in parts:
                again = seen.intersection(part.workers)
                if again:
                    raise ValueError(
                        f"worker {min(again)} is in two sketches: its rows would count twice. Give each sketch a worker "
                        "number of its own, or pass same_worker=True if their rows are different ones"
                    )
                seen.update(part.workers)
        n_jobs = self._settings["n_jobs"]
        return Sketch._of(_native.Sketch.merge([part._native for part in parts], n_jobs), n_jobs)

    def hasher(self, n_bits: int = 64, *, rotation: str | None = None) -> Hasher:
        """Fits a hasher. The sketch can fit hashers of several lengths, and take more rows afterwards."""
        from ._hasher import Hasher

        return Hasher._from_sketch(self, n_bits, rotation)

    def quantizer(self, n_bytes: int = 8, *, effort: int = 8) -> Quantizer:
        """Fits a quantiser. The sketch can fit several models, and take more rows afterwards. At least 1,024 rows must have
        been sampled."""
        from ._quantizer import Quantizer

        return Quantizer._from_sketch(self, n_bytes, effort)

    def copy(self) -> Sketch:
        """A copy, which learns on its own."""
        other = Sketch.__new__(Sketch)
        other.__setstate__(self.__getstate__())
        return other

    def to_bytes(self) -> bytes:
        """The bytes of a sketch file, the same that `frosh sketch` writes."""
        return self._native.to_bytes()

    @staticmethod
    def from_bytes(data: bytes, *, n_jobs: int | None = None) -> Sketch:
        """Reads the bytes of a sketch file, or of a checkpoint of the program, from which learning can go on."""
        return Sketch._of(_native.Sketch.from_bytes(bytes(data), n_jobs), n_jobs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a sketch file, which `frosh merge` and `frosh fit` read. An existing file is replaced atomically."""
        self._native.save(os.fspath(path))

    @staticmethod
    def load(path: str | os.PathLike[str], *, n_jobs: int | None = None) -> Sketch:
        """Reads a sketch file, or a checkpoint of the program."""
        return Sketch._of(_native.Sketch.load(os.fspath(path), n_jobs), n_jobs)

    @property
    def rows(self) -> int:
        """Number of rows that were learned from."""
        return self._native.facts()[0]

    @property
    def dim(self) -> int | None:
        """Values of a row; `None` before the first row."""
        return self._native.facts()[1] or None

    @property
    def method(self) -> str:
        """The algorithm that learns."""
        return self._native.facts()[2]

    @property
    def metric(self) -> str:
        """How rows are compared."""
        return self._native.facts()[3]

    @property
    def sketch_rows(self) -> int | None:
        """Rows of the sketch; `None` before the first row if it was not given."""
        return self._native.facts()[4] or None

    @property
    def block_rows(self) -> int | None:
        """Rows of the largest compressed block; `None` before the first row if it was not given."""
        return self._native.facts()[5] or None

    @property
    def seed(self) -> int:
        """Seed of all randomness."""
        return self._native.facts()[6]

    @property
    def workers(self) -> tuple[int, ...]:
        """Numbers of the workers whose rows it holds."""
        return tuple(self._native.facts()[7])

    @property
    def finished(self) -> bool:
        """Whether it takes no more rows: it was merged, or read from a sketch file."""
        return self._native.facts()[8]

    @property
    def mean(self) -> np.ndarray:
        """Mean of all rows."""
        return self._native.mean()

    @property
    def sketched(self) -> np.ndarray:
        """The sketched rows B: B'B approximates the scatter of the centred rows."""
        return self._native.sketched()

    @property
    def certificate(self) -> Certificate:
        """The bound on the error of the sketch."""
        return Certificate(*self._native.certificate())

    def spectrum(self) -> np.ndarray:
        """Estimated scatter along the principal directions, descending."""
        return self._native.spectrum()

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self._settings, "state": self._native.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._settings = state["settings"]
        if state["state"]:
            self._native = _native.Sketch.from_bytes(state["state"], self._settings["n_jobs"])
        else:
            self._native = _native.Sketch(**self._settings)

    def __repr__(self) -> str:
        rows, dim, method, metric, *_ = self._native.facts()
        return f"<frosh.Sketch: {rows} rows of {dim or '?'} values, {method}, {metric}, workers {self.workers}>"
