"""Packed codes that can be searched."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from . import _native
from ._inputs import whole

if TYPE_CHECKING:
    from ._models import Model


class Codes:
    """Packed codes of rows, and the model that made them. `Hasher.encode` and `Quantizer.encode` make them.

    >>> X = np.random.default_rng(0).standard_normal((500, 32), dtype=np.float32)
    >>> codes = frosh.Hasher(n_bits=16).fit(X).encode(X)
    >>> len(codes), codes.n_bits
    (500, 16)
    >>> ids, distances = codes.search(X[:2], k=3, ranking="hamming")
    >>> distances[0, 0]                        # a row's code is nearest to itself
    np.float64(0.0)
    >>> near = codes.within(X[:2], radius=2)   # a pair of arrays for each query
    >>> bool(0 in near[0][0])
    True

    The codes of a quantiser have no Hamming distances: they are searched with vectors as queries, by estimated distance.

    >>> codes = frosh.Quantizer(n_bytes=4).fit(np.tile(X, (4, 1))).encode(X)
    >>> codes.n_bytes, codes.is_quantized, codes.search(X[:2], k=3)[0].shape
    (4, True, (2, 3))
    """

    def __init__(self) -> None:
        raise TypeError("codes are made by Hasher.encode, Quantizer.encode, Codes.load or Codes.from_packed")

    @classmethod
    def _of(cls, native: Any, model: Any = None, n_jobs: int | None = None) -> Codes:
        codes = cls.__new__(cls)
        codes._native, codes._model, codes._n_jobs = native, model, n_jobs
        return codes

    @staticmethod
    def from_packed(
        packed: ArrayLike, n_bits: int | None = None, *, name: int = 0, hasher: Model | None = None
    ) -> Codes:
        """Codes from a uint8 matrix of packed bytes.

        With `hasher`, a fitted `Hasher` or `Quantizer`, the bytes are what its `transform` made, and vectors can be
        searched for. Otherwise they are codes of another hash function with `n_bits` bits, least significant bit first;
        only codes of the same `name` can be compared.

        >>> X = np.random.default_rng(0).standard_normal((2000, 32), dtype=np.float32)
        >>> quantizer = frosh.Quantizer(n_bytes=4).fit(X)
        >>> stored = quantizer.transform(X)
        >>> frosh.Codes.from_packed(stored, hasher=quantizer).search(X[:2], k=3)[0].shape
        (2, 3)
        """
        array = np.asarray(packed)
        model = None if hasher is None else hasher._model()
        if model is not None and n_bits not in (None, model.bits):
            raise ValueError(f"n_bits = {n_bits} is not possible: the codes of the model have {model.bits} bits")
        if model is None and n_bits is None:
            raise TypeError("give the number of bits, or the hasher that made the codes")
        width = model.bytes_per_row if model is not None else -(-(n_bits or 0) // 8)
        if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != width:
            raise ValueError(f"expected a uint8 matrix of {width} columns, got {array.dtype} of {array.shape}")
        if model is not None:
            return Codes._of(model.codes_from_packed(array.tobytes()), model, hasher.n_jobs if hasher else None)
        return Codes._of(_native.Codes.from_packed(array.tobytes(), n_bits or 0, name))

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        ranking: str | None = None,
        filter: ArrayLike | None = None,
        hasher: Model | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The `k` nearest rows of each query: their numbers and distances, nearest first, as two matrices.

        `queries` are vectors, or other `Codes` (compared by Hamming distance). `ranking` is "hamming", "asymmetric" or
        "estimated"; by default the one that the model chose. The codes of a quantiser have the estimated ranking only.
        `filter` limits the search to these rows. There are fewer than `k` columns if fewer rows match. Codes that were
        read from a file need their `hasher`, a `Hasher` or `Quantizer`, for vectors.
        """
        if self.is_quantized:
            check_quantized(ranking)
        found = self._search(queries, hasher, k=_count(k), ranking=ranking, filter=row_numbers(filter))
        return _matrices(found)

    def within(
        self, queries: Any, radius: int, *, filter: ArrayLike | None = None, hasher: Model | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """All rows whose code differs from the query's in at most `radius` bits: numbers and distances for each query. For
        sign bits only."""
        if self.is_quantized:
            check_quantized("hamming")
        found = self._search(queries, hasher, radius=_count(radius), ranking="hamming", filter=row_numbers(filter))
        return _lists(found)

    def _search(self, queries: Any, hasher: Model | None, **options: Any) -> Any:
        asked: Any
        if isinstance(queries, Codes):
            if self.is_quantized:
                raise ValueError("codes of a quantiser have no distances between each other: pass the queries as vectors")
            asked = queries._native
        elif isinstance(queries, (_native.Queries, _native.Codes)):
            asked = queries
        else:
            model = self._model if hasher is None else hasher._model()
            if model is None:
                raise ValueError("these codes do not have their hasher: pass it, or pass the queries as codes")
            asked = model.queries(whole(queries), self._n_jobs)
        return self._native.search(asked, n_jobs=self._n_jobs, **options)

    @property
    def packed(self) -> np.ndarray:
        """The packed bytes, one row for each code, as `transform` makes them."""
        return self._native.packed()

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        return self._native.bits

    @property
    def n_bytes(self) -> int:
        """Bytes of a code, without factors."""
        return self._native.bytes_per_row

    @property
    def is_quantized(self) -> bool:
        """Whether these are codes of a quantiser, not sign bits."""
        return self._native.is_quantized

    @property
    def has_factors(self) -> bool:
        """Whether the codes have factors, which the estimated ranking needs."""
        return self._native.has_factors

    @property
    def bytes_per_row(self) -> int:
        """Bytes of a code and its factors."""
        return self._native.stored_bytes_per_row

    @property
    def hasher_id(self) -> str:
        """The id of the model that made the codes."""
        return self._native.id

    def to_bytes(self) -> bytes:
        """The bytes of a codes file."""
        return self._native.to_bytes()

    @staticmethod
    def from_bytes(data: bytes, *, hasher: Model | None = None) -> Codes:
        """Reads the bytes of a codes file."""
        return Codes._of(_native.Codes.from_bytes(bytes(data)), None if hasher is None else hasher._model())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a codes file, which `frosh search` reads."""
        self._native.save(os.fspath(path))

    @staticmethod
    def load(path: str | os.PathLike[str], *, hasher: Model | None = None) -> Codes:
        """Reads a codes file."""
        return Codes._of(_native.Codes.load(os.fspath(path)), None if hasher is None else hasher._model())

    def __len__(self) -> int:
        return len(self._native)

    def __getstate__(self) -> dict[str, Any]:
        model = None if self._model is None else self._model.to_bytes()
        return {"codes": self.to_bytes(), "model": model, "n_jobs": self._n_jobs}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._native = _native.Codes.from_bytes(state["codes"])
        self._model = None if state["model"] is None else _native.Model.from_bytes(state["model"])
        self._n_jobs = state["n_jobs"]

    def __repr__(self) -> str:
        length = f"{self.n_bytes} bytes, quantiser" if self.is_quantized else f"{self.n_bits} bits"
        return f"<frosh.Codes: {len(self)} rows of {length}>"


def check_quantized(ranking: str | None) -> None:
    """Fails if the codes of a quantiser do not have this ranking."""
    if ranking in ("hamming", "asymmetric"):
        raise ValueError(
            f"the {ranking} ranking needs sign bits, and these are codes of a quantiser: use search with the estimated "
            "ranking, which is the default"
        )


def row_numbers(ids: ArrayLike | None) -> list[int] | None:
    """Numbers of rows as a list of integers that are not negative."""
    if ids is None:
        return None
    array = np.asarray(ids if hasattr(ids, "__len__") else list(ids))  # type: ignore[call-overload]
    if array.dtype == bool:
        raise TypeError("expected numbers of rows, got booleans: use numpy.flatnonzero")
    if array.size == 0:
        return []
    if array.dtype == object:
        array = np.array([int(i) for i in array.ravel()], dtype=object)
        if any(not 0 <= i < 2**64 for i in array):
            raise ValueError("ids are from 0 to 2**64 - 1")
        return array.tolist()
    if array.dtype.kind not in "iu":
        raise TypeError(f"expected whole numbers, got an array of type {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"expected one list of numbers, got {array.ndim} dimensions")
    if array.dtype.kind == "i" and int(array.min()) < 0:
        raise ValueError(f"{int(array.min())} is no id: ids are not negative")
    return array.tolist()


def _count(k: Any) -> int:
    number = int(k)
    if number != k or number < 0:
        raise ValueError(f"{k!r} is not possible: give a whole number that is not negative")
    return min(number, 2**32 - 1)


def _ids(ids: np.ndarray) -> np.ndarray:
    """Ids as int64, which other libraries expect; as uint64 only if one of them does not fit."""
    if ids.size and int(ids.max()) > np.iinfo(np.int64).max:
        return ids
    return ids.astype(np.int64)


def _matrices(found: Any) -> tuple[np.ndarray, np.ndarray]:
    counts, ids, distances = found
    # Every query sees the same rows, so that all have the same number of hits.
    shape = (len(counts), int(counts[0]) if len(counts) else 0)
    return _ids(ids).reshape(shape), distances.reshape(shape)


def _lists(found: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    counts, ids, distances = found
    ends = np.cumsum(counts, dtype=np.int64)[:-1]
    ids = _ids(ids)
    return list(zip(np.split(ids, ends), np.split(distances, ends))) if len(counts) else []
