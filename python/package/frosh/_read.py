"""Batches of vectors from files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import _native

_TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "u8": np.uint8, "i8": np.int8}


class VectorFile:
    """One or many files of vectors as a stream of batches. `frosh.read` opens them.

    Each iteration reads the files anew, in a thread of its own, with memory for a few batches.
    """

    __frosh_batches__ = True

    def __init__(self, paths: list[str], options: dict[str, Any]) -> None:
        self._paths, self._options = paths, options
        opened = _native.Reader(paths, **options)
        self._dim, self._rows, self._kind = opened.dim, opened.rows, opened.kind
        self._files: list[str] = opened.files
        self._left_out = 0

    @property
    def dim(self) -> int:
        """Values of a row."""
        return self._dim

    @property
    def rows(self) -> int | None:
        """Number of rows, if it is known before reading."""
        return self._rows

    @property
    def dtype(self) -> np.dtype:
        """Element type of the first file."""
        return np.dtype(_TYPES[self._kind])

    @property
    def files(self) -> list[str]:
        """The files, in the order of the stream."""
        return list(self._files)

    @property
    def left_out(self) -> int:
        """Rows that the last iteration left out so far because they cannot be used (`skip_bad=True`)."""
        return self._left_out

    def __iter__(self) -> Iterator[np.ndarray]:
        reader = _native.Reader(self._paths, **self._options)
        while True:
            batch = reader.next()
            self._left_out = reader.left_out
            if batch is None:
                return
            yield batch

    def __repr__(self) -> str:
        rows = "?" if self._rows is None else self._rows
        return f"<frosh.VectorFile: {len(self._files)} file(s), {rows} rows of {self._dim} values, {self.dtype}>"


def read(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    column: str | None = None,
    columns: str | None = None,
    dataset: str | None = None,
    format: str | None = None,
    dim: int | None = None,
    dtype: str | None = None,
    skip_bad: bool = False,
) -> VectorFile:
    """Opens files of vectors of any format that the `frosh` program reads: batches as NumPy arrays.

    Parameters
    ----------
    path : path, or list of paths
        A file, a folder, or a pattern such as "part-*.npy".
    column : str, optional
        The column with the vectors (Parquet, Arrow) or the field (JSON Lines).
    columns : str, optional
        The columns that are the dimensions (Parquet, Arrow, CSV, TSV), such as "x0..x9" or "a,b".
    dataset : str, optional
        The data set (HDF5), array (.npz) or tensor (safetensors).
    format : str, optional
        The format, if content and name do not tell it.
    dim, dtype : optional
        Dimension and element type ("f32", "f16", ...) of raw values.
    skip_bad : bool
        Leave out rows that cannot be used (nulls, NaN, infinity) instead of failing.

    >>> import os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "x.npy")
    >>> np.save(path, np.zeros((5, 3), np.float32))
    >>> vectors = frosh.read(path)
    >>> vectors.rows, vectors.dim, sum(len(batch) for batch in vectors)
    (5, 3, 5)
    """
    if isinstance(path, (str, bytes)) or hasattr(path, "__fspath__"):
        paths: Sequence[Any] = [path]
    elif isinstance(path, (list, tuple)):
        paths = path
    else:
        raise TypeError(f"expected a path or a list of paths, got {type(path).__name__}")
    options = {
        "column": column,
        "columns": columns,
        "dataset": dataset,
        "format": format,
        "dim": dim,
        "dtype": dtype,
        "skip_bad": skip_bad,
    }
    return VectorFile([os.fspath(p) for p in paths], options)
