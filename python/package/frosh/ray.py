"""Learning and encoding with Ray.

>>> import ray, frosh.ray                                               # doctest: +SKIP
>>> data = ray.data.read_parquet("vectors/")                            # doctest: +SKIP
>>> sketch = frosh.ray.sketch(data, column="embedding")                 # doctest: +SKIP
>>> coded = frosh.ray.encode(data, sketch.hasher(64), column="embedding")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._engines import FAN_IN, check_fan_in, finished, groups, merge_bytes, settings, sketch_part
from ._models import Model
from ._sketch import Sketch

try:
    import ray
except ImportError as error:
    raise ImportError("frosh.ray needs Ray: pip install 'frosh[ray]'") from error


def sketch(data: Any, *, column: str | None = None, fan_in: int = FAN_IN, **sketch_settings: Any) -> Sketch:
    """Learns from a Ray Dataset, or from a list of references to batches: one task and one sketch for each block, then a
    tree of merges.

    Block i is worker i. Ray runs a task again if its process dies, and the bytes stay the same. For a fixed split pass
    references (`ray.put(batch)`), or a dataset with a fixed number of blocks. With at most `fan_in` blocks the result
    has the bytes of `frosh sketch --worker i` on each block and one `frosh merge`. `column` chooses the column that has
    the vectors; `sketch_settings` are those of `frosh.Sketch`.
    """
    given, check = settings(sketch_settings), check_fan_in(fan_in)
    blocks = list(data) if isinstance(data, (list, tuple)) else data.materialize().to_arrow_refs()
    if not blocks:
        raise ValueError("no rows were seen: there is nothing to learn from")
    part = ray.remote(max_retries=3)(_part)
    merge = ray.remote(max_retries=3)(_merge)
    level = [part.remote(block, worker, given, column) for worker, block in enumerate(blocks)]
    while len(level) > 1:
        level = [merge.remote(*group) for group in groups(level, check)]
    return finished(ray.get(level[0]))


def encode(data: Any, hasher: Model, *, column: str, output: str = "code") -> Any:
    """A Ray Dataset with one more column: the packed code of each row by a `Hasher` or `Quantizer`, as fixed-size binary.
    Nothing is computed yet."""
    if not isinstance(output, str) or not output:
        raise ValueError("output is the name of a column")
    model = ray.put(hasher)

    def add(table: Any) -> Any:
        import pyarrow as pa

        codes = _codes(table, ray.get(model), column)
        values = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(codes.shape[1]), len(codes), [None, pa.py_buffer(codes)]
        )
        return table.append_column(output, values)

    return data.map_batches(add, batch_format="pyarrow")


def _codes(table: Any, hasher: Model, column: str) -> np.ndarray:
    if table.num_rows == 0:
        return np.empty((0, hasher._model().bytes_per_row), np.uint8)
    return np.ascontiguousarray(hasher.transform(_storage(table, column)))


def _storage(table: Any, column: str | None) -> Any:
    """The list column of a table. Ray wraps matrices in a type of its own, whose storage is a list column."""
    import pyarrow as pa

    if not isinstance(table, pa.Table):
        return table
    if column is None:
        if table.num_columns != 1:
            raise ValueError(f"choose the column with the vectors: one of {', '.join(table.column_names)}")
        column = table.column_names[0]
    if column not in table.column_names:
        raise ValueError(f"there is no column {column!r}: the columns are {', '.join(table.column_names)}")
    chosen = table.column(column)
    if isinstance(chosen.type, pa.ExtensionType):
        chunks = [chunk.storage for chunk in chosen.chunks]
        return pa.chunked_array(chunks, type=chosen.type.storage_type)
    return chosen


def _part(block: Any, worker: int, given: dict[str, Any], column: str | None) -> bytes | None:
    rows = _storage(block, column)
    return sketch_part([rows] if len(rows) else [], worker, given)


def _merge(*parts: bytes | None) -> bytes | None:
    return merge_bytes(parts)
