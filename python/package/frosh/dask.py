"""Learning and encoding with Dask.

>>> import dask.array as da
>>> import frosh.dask
>>> x = da.from_array(np.random.default_rng(0).standard_normal((4000, 16)).astype("f4"), chunks=(1000, 16))
>>> sketch = frosh.dask.sketch(x, sketch_rows=16)
>>> sketch.rows, sketch.workers
(4000, (0, 1, 2, 3))
>>> codes = frosh.dask.encode(x, sketch.hasher(8))
>>> codes.compute().shape
(4000, 1)
>>> frosh.dask.encode(x, sketch.quantizer(4)).compute().shape
(4000, 4)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._engines import FAN_IN, check_fan_in, finished, groups, merge_bytes, settings, sketch_part
from ._models import Model
from ._sketch import Sketch

try:
    import dask
except ImportError as error:
    raise ImportError("frosh.dask needs Dask: pip install 'frosh[dask]'") from error


def sketch(data: Any, *, column: str | None = None, fan_in: int = FAN_IN, **sketch_settings: Any) -> Sketch:
    """Learns from a Dask array, data frame or bag, or from a list of delayed batches: one sketch for each chunk of rows
    or partition, then a tree of merges.

    Chunk i is worker i. The result is the same for any number of workers, and after a worker was lost. With at most
    `fan_in` chunks it has the bytes of `frosh sketch --worker i` on each chunk and one `frosh merge`. `column` chooses
    the column of a data frame that has the vectors; `sketch_settings` are those of `frosh.Sketch`.
    """
    given, check = settings(sketch_settings), check_fan_in(fan_in)
    part = dask.delayed(_part, pure=True)
    merge = dask.delayed(merge_bytes, pure=True)
    level = [part(batch, worker, given, column) for worker, batch in enumerate(_parts(data))]
    if not level:
        raise ValueError("no rows were seen: there is nothing to learn from")
    while len(level) > 1:
        level = [merge(group) for group in groups(level, check)]
    return finished(dask.compute(level[0])[0])


def encode(data: Any, hasher: Model, *, column: str | None = None) -> Any:
    """Packed codes by a `Hasher` or `Quantizer` as a Dask array: of a Dask array with the same chunks of rows, of a data frame with one chunk for
    each partition. Nothing is computed yet."""
    import dask.array as da

    width = hasher._model().bytes_per_row
    if isinstance(data, da.Array):
        rows = data.rechunk({1: data.shape[1]}) if len(data.chunks[1]) > 1 else data
        return rows.map_blocks(_encode, hasher, dtype=np.uint8, chunks=(rows.chunks[0], (width,)), meta=np.empty((0, 0), np.uint8))
    blocks = [
        da.from_delayed(dask.delayed(_encode)(part, hasher, column), shape=(np.nan, width), dtype=np.uint8)
        for part in _parts(data)
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _parts(data: Any) -> list[Any]:
    if isinstance(data, (list, tuple)):
        return list(data)
    if hasattr(data, "chunks") and hasattr(data, "rechunk"):
        if data.ndim != 2:
            raise ValueError(f"Expected 2D array, got {data.ndim}D array instead")
        rows = data.rechunk({1: data.shape[1]}) if len(data.chunks[1]) > 1 else data
        return list(rows.to_delayed().ravel())
    if hasattr(data, "to_delayed"):
        return list(data.to_delayed())
    raise TypeError(f"expected a Dask array, data frame, bag or a list of delayed batches, got {type(data).__name__}")


def _part(batch: Any, worker: int, given: dict[str, Any], column: str | None) -> bytes | None:
    return sketch_part([batch] if len(batch) else [], worker, given, column)


def _encode(batch: Any, hasher: Model, column: str | None = None) -> np.ndarray:
    if len(batch) == 0:
        return np.empty((0, hasher._model().bytes_per_row), np.uint8)
    return hasher.transform(batch, column=column)
