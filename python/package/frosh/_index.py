"""Index folders: codes, ids and vectors on disk, for many readers and one writer."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import _native
from ._codes import _count, _lists, _matrices, check_quantized, row_numbers
from ._estimator import encoding_values
from ._hasher import Hasher
from ._inputs import pieces, row_count, whole
from ._models import Model, of_model
from ._progress import Progress, reporting

#: Rows are encoded and copied piece by piece.
_PIECE = 8 << 20


class Index:
    """Rows that can be added, removed and searched, in a folder of files that are mapped, not read.

    Parameters
    ----------
    hasher : Hasher or Quantizer
        A fitted model. The codes of a quantiser are made with its default effort.
    path : path, optional
        A new or empty folder. Without it, the index is in a temporary folder until `save`.
    factors : bool, optional
        Keep one byte more for each row, which the estimated ranking needs. By default if the hasher's ranking is that
        one. The codes of a quantiser need no factors.
    vectors : {"f32", "f16"}, optional
        Keep the vectors too, for re-ranking by exact distance.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((500, 32), dtype=np.float32)
    >>> index = frosh.Index(frosh.Hasher(n_bits=16).fit(X), vectors="f16")
    >>> _ = index.add(X)                              # ids 0 to 499
    >>> _ = index.add(X[:2] + 1, ids=[1000, 2000])
    >>> index.remove([3, 4])
    2
    >>> len(index), 1000 in index, 3 in index
    (500, True, False)
    >>> ids, distances = index.search(X[7:8], k=3)    # re-ranked by exact distance
    >>> int(ids[0, 0])
    7
    >>> ids, _ = index.search(X[7:8], k=3, filter=[10, 20, 30])
    >>> sorted(ids[0].tolist())
    [10, 20, 30]
    >>> index.close()

    Ids may be strings.

    >>> pictures = frosh.Index(frosh.Hasher(n_bits=16).fit(X), vectors="f32")
    >>> _ = pictures.add(X[:3], ids=["cat.jpg", "dog.jpg", "cow.jpg"])
    >>> pictures.search(X[1:2], k=1)[0]
    array([['dog.jpg']], dtype=object)
    >>> pictures.remove(["dog.jpg", "none.jpg"])
    1

    With a quantiser:

    >>> index = frosh.Index(frosh.Quantizer(n_bytes=4).fit(np.tile(X, (4, 1))))
    >>> _ = index.add(X)
    >>> index.model, index.bytes_per_row, index.search(X[:2], k=3)[0].shape
    (Quantizer(n_bytes=4), 4, (2, 3))
    """

    def __init__(
        self,
        hasher: Model,
        path: str | os.PathLike[str] | None = None,
        *,
        factors: bool | None = None,
        vectors: str | None = None,
        n_jobs: int | None = None,
    ) -> None:
        model = hasher._model()
        self._temporary = None
        if path is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="frosh-index-")
            path = os.path.join(self._temporary.name, "index")
        self._path = os.fspath(path)
        self._n_jobs = n_jobs
        if factors is None:
            factors = model.has_factors and model.ranking == "estimated"
        self._native = _native.Index.create(self._path, model, factors, vectors)
        self._describe(model)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], mode: str = "r", *, verify: bool = True, n_jobs: int | None = None
    ) -> Index:
        """Opens an index folder. The files are mapped: opening costs little, whatever their size.

        With `mode="a"` it can be changed, and no other process can change it until `close`. A reader sees the index as
        it was when it was opened. `verify=False` does not check checksums when files are first read.
        """
        if mode not in ("r", "a"):
            raise ValueError(f"mode = {mode!r} is not possible: use 'r' or 'a'")
        index = cls.__new__(cls)
        index._temporary = None
        index._path, index._n_jobs = os.fspath(path), n_jobs
        index._native = _native.Index.open(index._path, mode == "a", verify)
        index._describe(index._native.model())
        return index

    def _describe(self, model: Any) -> None:
        """Keeps what calls need to know of the model."""
        self._is_quantized = model.kind == "quantizer"
        self._first_piece = encoding_values(model)

    def add(
        self,
        X: Any,
        ids: ArrayLike | Sequence[str] | None = None,
        *,
        replace: bool = False,
        column: str | None = None,
        progress: Progress = None,
    ) -> int:
        """Adds rows, all or none. Returns the number of rows that were replaced.

        `ids` are whole numbers, or strings; an index has ids of one kind. Rows without `ids` are numbered on from the
        largest id. An id that exists is an error, unless `replace` is set.
        """
        given = None if ids is None else _given(ids)
        with reporting(progress, row_count(X), "adding") as report:

            def parts() -> Iterator[tuple[int, np.ndarray, list[int] | list[str] | None]]:
                done = 0
                for first, piece in pieces(X, column, _PIECE, self._first_piece):
                    done = first + len(piece)
                    if given is not None and done > len(given):
                        raise ValueError(f"there are {len(given)} ids, and more rows: give one for each row")
                    yield first, piece, None if given is None else given[first:done]
                    report(len(piece))
                if given is not None and done != len(given):
                    raise ValueError(f"there are {len(given)} ids for {done} rows: give one for each row")

            return self._native.add(parts(), replace, self._n_jobs)

    def remove(self, ids: ArrayLike | Sequence[str]) -> int:
        """Removes rows. Returns their number; ids that do not exist are ignored."""
        return self._native.remove(_given(ids))

    def compact(self) -> None:
        """Rewrites all rows into one segment, without the removed ones. Ids and hits stay the same."""
        self._native.compact()

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        filter: ArrayLike | Sequence[str] | None = None,
        ranking: str | None = None,
        rerank: int | bool | None = None,
        column: str | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The `k` nearest rows of each query vector: their ids and distances, nearest first, as two matrices.

        An index with vectors puts the best `rerank * k` candidates in exact order; by default as many as the model
        predicts for a recall of about 0.9, and none for `rerank=0`. `filter` limits the search to these ids. There are
        fewer than `k` columns if fewer rows match. Ids that are strings come as an array of objects.
        """
        if self._is_quantized:
            check_quantized(ranking)
        factor = None if rerank is None or rerank is True else int(rerank)
        found, names = self._search(queries, column, k=_count(k), ranking=ranking, filter=filter, rerank=factor)
        ids, distances = _matrices(found)
        return (ids if names is None else names.reshape(ids.shape)), distances

    def within(
        self,
        queries: Any,
        radius: int,
        *,
        filter: ArrayLike | Sequence[str] | None = None,
        column: str | None = None,
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """All rows whose code differs from the query's in at most `radius` bits: ids and distances for each query. For
        sign bits only."""
        if self._is_quantized:
            check_quantized("hamming")
        found, names = self._search(queries, column, radius=_count(radius), filter=filter)
        lists = _lists(found)
        if names is None:
            return lists
        ends = np.cumsum([len(ids) for ids, _ in lists])[:-1]
        return [(part, distances) for part, (_, distances) in zip(np.split(names, ends), lists)]

    def _search(
        self, queries: Any, column: str | None, filter: Any, **options: Any
    ) -> tuple[Any, np.ndarray | None]:
        """Hits, and the names of all hits if the ids are strings."""
        among = None if filter is None else _given(filter)
        if among == [] and self._native.has_names():
            among = [""]  # no row has an empty name
        found, names = self._native.search(whole(queries, column), filter=among, n_jobs=self._n_jobs, **options)
        if names is None:
            return found, None
        array = np.empty(len(names), dtype=object)
        array[:] = names
        return found, array

    def save(self, path: str | os.PathLike[str]) -> None:
        """Copies the index to a new folder, which appears when it is complete."""
        target = os.path.abspath(os.fspath(path))
        if os.path.lexists(target) and not (os.path.isdir(target) and not os.listdir(target)):
            raise FileExistsError(f"{target} is there already: give a new folder")
        parent = os.path.dirname(target)
        self._native.facts()  # fails if the index is closed
        with tempfile.TemporaryDirectory(prefix=".frosh-save-", dir=parent) as folder:
            copy = os.path.join(folder, "index")
            shutil.copytree(self._path, copy, ignore=shutil.ignore_patterns("lock", "journal"))
            Index.open(copy)._native.check()
            os.replace(copy, target)

    def check(self) -> None:
        """Reads all files and verifies their checksums."""
        self._native.check()

    def close(self) -> None:
        """Closes the index, and lets others change it. An index in a temporary folder is gone."""
        self._native.close()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    @property
    def path(self) -> str:
        """The folder."""
        return self._path

    @property
    def model(self) -> Model:
        """The model of the index: a `Hasher` or a `Quantizer`."""
        return of_model(self._native.model(), self._n_jobs)

    @property
    def hasher(self) -> Hasher:
        """The hasher of an index of sign bits."""
        model = self.model
        if not isinstance(model, Hasher):
            raise ValueError("the index was built with a quantiser, and has no hasher: use its property model")
        return model

    @property
    def removed(self) -> int:
        """Removed rows that still take space."""
        return self._native.facts()[1]

    @property
    def segments(self) -> int:
        """Number of segments: each `add` makes one, and `compact` merges them."""
        return self._native.facts()[2]

    @property
    def has_factors(self) -> bool:
        """Whether the rows have factors, which the estimated ranking needs."""
        return self._native.facts()[4]

    @property
    def vectors(self) -> str | None:
        """The precision of stored vectors; `None` if there are none."""
        return self._native.facts()[5]

    @property
    def bytes_per_row(self) -> int:
        """Bytes of a row on disk: code, factors and vector."""
        return self._native.facts()[6]

    @property
    def writable(self) -> bool:
        """Whether the index can be changed."""
        return self._native.facts()[7]

    def __len__(self) -> int:
        return self._native.facts()[0]

    def __contains__(self, id: object) -> bool:
        if isinstance(id, str):
            return self._native.contains_name(id)
        if isinstance(id, (bool, np.bool_)) or not isinstance(id, (int, np.integer)):
            return False
        number = int(id)
        return 0 <= number < 2**64 and self._native.contains(number)

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            return f"<frosh.Index: {len(self)} rows, {self._path}>"
        except ValueError:
            return "<frosh.Index: closed>"


def _given(ids: Any) -> list[int] | list[str]:
    """Ids of the caller: all whole numbers, or all strings."""
    if isinstance(ids, (str, bytes)):
        raise TypeError("expected a list of ids, got one string")
    known = ids if hasattr(ids, "__len__") else list(ids)
    if len(known) and any(isinstance(id, str) for id in known):
        for id in known:
            if not isinstance(id, str):
                raise TypeError(f"ids are all strings or all whole numbers, got {type(id).__name__} beside strings")
        return [str(id) for id in known]
    return row_numbers(known) or []
