"""From any input to pieces that the extension module reads: C-contiguous matrices of a type that frosh knows.

A piece is a view of the input if the input has such a layout already. Otherwise it is a converted copy of a few
megabytes, made when its turn comes. So memory does not grow with the input, and Ctrl-C is handled between two pieces.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import _native

#: Values of the first piece.
START_VALUES = 4 << 20
#: Bytes of a piece that is a converted copy.
_COPY_BYTES = 4 << 20
#: A piece shall take at most about this long, so that Ctrl-C and progress are handled often enough.
_SECONDS = 0.4

#: Types that frosh reads without conversion.
_KNOWN = {("f", 2), ("f", 4), ("f", 8), ("u", 1), ("i", 1)}


def learning_values(method: str, metric: str, sketch_rows: int | None) -> int:
    """Values of the first piece to learn from.

    Every end of a piece costs FROSH time, because the shrink of a block runs in parallel with the compression of the
    next one: so pieces are large. 2^26 values take .1 to .4 seconds on two cores. OSH has no blocks, and its cost for a
    row is proportional to the rows of the sketch. Rows for cosine are scaled first, which takes longer.
    """
    values = 1 << 19 if method == "osh" else 1 << 24 if metric == "cosine" else 1 << 26
    return values * 256 // max(256, sketch_rows or 256)


def pieces(
    X: Any, column: str | None = None, most: int | None = None, start: int = START_VALUES
) -> Iterator[tuple[int, np.ndarray]]:
    """The rows of `X` as pieces, each with the number of its first row. `most` limits the bytes of a piece, and `start`
    is the number of values of the first one.

    A piece of type uint16 holds the bits of bfloat16 values. All other types are what NumPy says they are.
    """
    first = 0
    for array, is_bf16 in _arrays(X, column):
        for piece in _cut(array, is_bf16, most, start):
            yield first, piece
            first += piece.shape[0]


def whole(X: Any, column: str | None = None) -> np.ndarray:
    """The rows of `X` as one matrix, for inputs that are small: queries."""
    parts = [piece for _, piece in pieces(X, column)]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        raise ValueError("there are no rows")
    if any(part.dtype != parts[0].dtype or part.dtype == np.uint16 for part in parts):
        parts = [widened(part) for part in parts]
    return np.concatenate(parts)


def widened(piece: np.ndarray) -> np.ndarray:
    """A piece in double precision."""
    if piece.dtype == np.uint16:
        return (piece.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return piece.astype(np.float64)


def row_count(X: Any) -> int | None:
    """The number of rows, if the input tells it without being read."""
    rows = getattr(X, "rows", None)
    if isinstance(rows, int):
        return rows
    shape = getattr(X, "shape", None)
    if isinstance(shape, tuple) and shape and isinstance(shape[0], int):
        return shape[0]
    if hasattr(X, "__len__") and not hasattr(X, "__arrow_c_array__"):
        try:
            return len(X)
        except Exception:  # an object that cannot tell its length has none
            return None
    return None


def feature_names(X: Any) -> np.ndarray | None:
    """The names of a data frame's columns if all are strings, as scikit-learn keeps them."""
    if not _is_from(X, "pandas", "polars") or getattr(X, "ndim", 2) != 2 or not hasattr(X, "columns"):
        return None
    names = list(X.columns)
    if names and all(isinstance(name, str) for name in names):
        return np.asarray(names, dtype=object)
    return None


def _is_from(X: Any, *packages: str) -> bool:
    return any(kind.__module__.split(".")[0] in packages for kind in type(X).__mro__)


def _arrays(X: Any, column: str | None) -> Iterator[tuple[np.ndarray, bool]]:
    """Matrices of any type and layout, and whether they hold bfloat16 values."""
    if isinstance(X, np.ndarray):
        if column is not None:
            raise ValueError("a column is chosen, but the input is an array")
        yield _matrix(X)
    elif _is_from(X, "scipy") and hasattr(X, "toarray"):
        raise TypeError("Sparse data was passed, and frosh reads dense rows: give X[a:b].toarray() batch by batch")
    elif _is_from(X, "pandas"):
        yield from _pandas(X, column)
    elif hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__"):
        yield from _arrow(X, column)
    elif _is_from(X, "polars"):
        raise TypeError(f"expected rows, got {type(X).__name__} of polars: call its collect() first")
    elif hasattr(X, "__dlpack__"):
        yield _dlpack(X)
    elif hasattr(X, "__next__") or hasattr(X, "__frosh_batches__"):
        for batch in X:
            yield from _arrays(batch, column)
    elif isinstance(X, (str, bytes)) or hasattr(X, "__fspath__"):
        raise TypeError(f"expected rows, got {type(X).__name__}: to read a file, pass frosh.read(path)")
    elif isinstance(X, dict) or X is None or isinstance(X, (set, frozenset)):
        raise TypeError(f"expected rows, got {type(X).__name__}")
    else:
        yield _matrix(_as_array(X))


def _as_array(X: Any) -> np.ndarray:
    """An array of an object with the buffer protocol (without a copy), with `__array__`, or of nested lists."""
    try:
        return np.asarray(memoryview(X))
    except (TypeError, ValueError, BufferError):
        pass
    try:
        return np.asarray(X)
    except ValueError as error:
        raise ValueError(f"expected rows of equal length: {error}") from error


def _matrix(array: np.ndarray) -> tuple[np.ndarray, bool]:
    """The array, checked to be a matrix of numbers."""
    if isinstance(array, np.ma.MaskedArray):
        if np.ma.is_masked(array):
            raise ValueError("the array has masked values: fill or remove them")
        array = array.data
    array = np.asarray(array)
    if array.ndim == 1 and array.dtype == object and len(array) and isinstance(array[0], (np.ndarray, list, tuple)):
        raise ValueError("expected a matrix, got an array of arrays: use numpy.stack, or a pandas column")
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {array.ndim}D array instead. Reshape your data: X.reshape(1, -1) is one row, and "
            "X.reshape(-1, 1) has one value in each row"
        )
    if array.shape[1] == 0:
        raise ValueError(f"0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported")
    if array.dtype.name == "bfloat16":
        return array.view(np.uint16), True
    if array.dtype.kind not in "fiubO":
        raise TypeError(f"expected numbers, got an array of type {array.dtype}")
    return array, False


def _cut(array: np.ndarray, is_bf16: bool, most: int | None, start: int) -> Iterator[np.ndarray]:
    """Pieces of a matrix. Their size follows the time that the caller takes for one."""
    rows = array.shape[0]
    if rows == 0:
        array, is_bf16 = np.empty((0, array.shape[1]), np.float32), False
        yield array
        return
    target = np.dtype(np.uint16) if is_bf16 else _target(array.dtype)
    direct = array.dtype == target and array.flags.c_contiguous and array.flags.aligned
    width = array.shape[1] * target.itemsize
    largest = most or (sys.maxsize if direct else _COPY_BYTES)
    if target != np.float32:
        start //= 4  # other types are converted on the way, which takes longer
    step = max(1, min(start // array.shape[1], largest // width))
    at = 0
    while at < rows:
        piece = array[at : at + step]
        if not direct:
            piece = _converted(piece, target)
        at += piece.shape[0]
        begun = time.perf_counter()
        yield piece
        seconds = time.perf_counter() - begun
        if seconds > _SECONDS:
            step = max(1, step // 2)
        elif seconds < _SECONDS / 8:
            step = max(1, min(step * 4, largest // width, rows))


def _target(dtype: np.dtype) -> np.dtype:
    """The type that values are converted to: the same one if frosh knows it, else the smallest that holds them."""
    if (dtype.kind, dtype.itemsize) in _KNOWN:
        return dtype.newbyteorder("=")
    if dtype.kind == "b" or (dtype.kind in "iu" and dtype.itemsize == 2):
        return np.dtype(np.float32)
    return np.dtype(np.float64)


def _converted(piece: np.ndarray, target: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.require(piece.astype(target, order="C"), requirements=["C", "A"])


def _dlpack(X: Any) -> tuple[np.ndarray, bool]:
    """A tensor on the CPU as an array, without a copy."""
    if hasattr(X, "detach"):
        X = X.detach()
    device = getattr(X, "__dlpack_device__", None)
    if device is not None and int(device()[0]) not in (1, 3, 11, 13):  # CPU, pinned and managed memory
        raise TypeError(f"expected a tensor on the CPU, got one on {getattr(X, 'device', 'another device')}")
    if str(getattr(X, "dtype", "")) == "torch.bfloat16":
        torch = sys.modules["torch"]
        return _matrix(np.from_dlpack(X.view(torch.uint16)))[0], True
    try:
        array = np.from_dlpack(X)
    except (BufferError, RuntimeError, TypeError) as error:
        # Types that NumPy does not take by DLPack, such as bfloat16 of JAX.
        if not hasattr(X, "__array__"):
            raise TypeError(f"cannot read the tensor: {error}") from error
        array = np.asarray(X)
    return _matrix(array)


def _arrow(X: Any, column: str | None) -> Iterator[tuple[np.ndarray, bool]]:
    """Columns of lists as matrices, without a copy; columns of numbers, a few rows at a time."""
    for blocks in _native.arrow_blocks(X, column):
        arrays = [np.asarray(block) for block in blocks]
        if len(arrays) == 1 and arrays[0].ndim == 2:
            if arrays[0].shape[0]:
                yield _matrix(arrays[0])
        else:
            yield from _stacked(arrays[0].shape[0] if arrays else 0, len(arrays), lambda a, b: np.stack(
                [array[a:b] for array in arrays], axis=1))


def _stacked(rows: int, dim: int, take: Callable[[int, int], np.ndarray]) -> Iterator[tuple[np.ndarray, bool]]:
    step = max(1, _COPY_BYTES // (8 * max(dim, 1)))
    for a in range(0, rows, step):
        yield _matrix(take(a, min(a + step, rows)))


def _pandas(X: Any, column: str | None) -> Iterator[tuple[np.ndarray, bool]]:
    """A data frame of numbers, or a column of lists or arrays."""
    if X.ndim == 2:
        if column is None and X.shape[1] == 1 and X.dtypes.iloc[0] == object:
            column = X.columns[0]
        if column is None:
            if X.shape[1] == 0 or X.shape[0] == 0:
                yield _matrix(np.empty(X.shape, np.float32))
            yield from _stacked(X.shape[0], X.shape[1], lambda a, b: X.iloc[a:b].to_numpy())
            return
        if column not in X.columns:
            raise ValueError(f"there is no column {column!r}: the columns are {', '.join(map(str, X.columns))}")
        X = X[column]
    if X.dtype != object and hasattr(X, "__arrow_c_stream__") and "list" in str(X.dtype):
        yield from _arrow(X, None)
        return
    if X.dtype != object:
        raise ValueError(f"Expected 2D array, got 1D array instead. Reshape your data: a pandas column of {X.dtype}")
    at, step = 0, 1024
    while at < len(X):
        part = X.iloc[at : at + step]
        try:
            yield _matrix(np.stack([np.asarray(row) for row in part]))
        except ValueError as error:
            raise ValueError(f"rows {at} to {at + len(part) - 1}: expected lists of equal length: {error}") from error
        at += step
