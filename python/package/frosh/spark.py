"""Learning and encoding with Spark, from Python and from Spark SQL.

>>> import frosh.spark                                                    # doctest: +SKIP
>>> sketch = frosh.spark.sketch(df, "embedding")                          # doctest: +SKIP
>>> hasher = sketch.hasher(64)                                            # doctest: +SKIP
>>> coded = frosh.spark.encode(df, hasher, "embedding", output="code")    # doctest: +SKIP

In SQL, after `frosh.spark.register(spark, hasher)`:

    SELECT frosh_merge(sketch) FROM (
        SELECT frosh_sketch(embedding, part) AS sketch FROM vectors GROUP BY part)
    SELECT id, frosh_encode(embedding) AS code FROM vectors
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ._engines import FAN_IN, check_fan_in, finished, merge_bytes, settings, sketch_part
from ._models import Model
from ._sketch import Sketch

try:
    import pandas as pd
    from pyspark.sql import functions as F
    from pyspark.sql.functions import pandas_udf
    from pyspark.sql.types import BinaryType, StructField, StructType
except ImportError as error:
    raise ImportError("frosh.spark needs PySpark and pandas: pip install 'frosh[spark]'") from error

_PARTS = "worker long, sketch binary"


def sketch(df: Any, column: str, *, fan_in: int = FAN_IN, **sketch_settings: Any) -> Sketch:
    """Learns from a column of arrays of numbers: one sketch for each partition, then a tree of merges on the executors.

    Partition i is worker i, and its rows are read in their order. Spark runs a task again if its executor dies, and the
    bytes stay the same. For a fixed split give the data frame fixed partitions, one for each file or by
    `repartitionByRange`. With at most `fan_in` partitions the result has the bytes of `frosh sketch --worker i` on each
    partition and one `frosh merge`. `sketch_settings` are those of `frosh.Sketch`.
    """
    given, check = settings(sketch_settings), check_fan_in(fan_in)
    if column not in df.columns:
        raise ValueError(f"there is no column {column!r}: the columns are {', '.join(df.columns)}")

    def part(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        worker = 0 if context is None else context.partitionId()
        data = sketch_part((batch.column(0) for batch in batches if batch.num_rows), worker, given)
        if data is not None:
            yield pa.RecordBatch.from_arrays([pa.array([worker], pa.int64()), pa.array([data], pa.binary())], ["worker", "sketch"])

    parts = df.select(df[column]).mapInArrow(part, _PARTS)
    size, group = df.rdd.getNumPartitions(), 1
    while size > 1:
        group *= check
        size = -(-size // check)
        parts = _merged(parts, group)
    rows = parts.collect()
    return finished(bytes(rows[0].sketch) if rows else None)


def _merged(parts: Any, group: int) -> Any:
    """One sketch for each group of workers. The worker of the result is the first one of its group."""

    def merge(table: Any) -> Any:
        import pyarrow as pa

        ordered = sorted(zip(table.column("worker").to_pylist(), table.column("sketch").to_pylist()))
        data = merge_bytes(sketch for _, sketch in ordered)
        return pa.table({"worker": pa.array([ordered[0][0]], pa.int64()), "sketch": pa.array([data], pa.binary())})

    key = F.floor(F.col("worker") / group)
    return parts.groupBy(key.alias("group")).applyInArrow(merge, _PARTS)


def encode(df: Any, hasher: Model, column: str, *, output: str = "code") -> Any:
    """The data frame with one more column: the packed code of each row by a `Hasher` or `Quantizer`, as binary. Nothing is
    computed yet."""
    if column not in df.columns:
        raise ValueError(f"there is no column {column!r}: the columns are {', '.join(df.columns)}")
    if output in df.columns:
        raise ValueError(f"there is a column {output!r} already: choose another name for the codes")
    at = df.columns.index(column)

    def add(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            codes = _binary(hasher, batch.column(at)) if batch.num_rows else pa.array([], pa.binary())
            yield pa.RecordBatch.from_arrays([*batch.columns, codes], [*batch.schema.names, output])

    return df.mapInArrow(add, StructType([*df.schema.fields, StructField(output, BinaryType())]))


def _binary(hasher: Model, rows: Any) -> Any:
    """The codes of rows as an Arrow array of binary values."""
    import pyarrow as pa

    codes = np.ascontiguousarray(hasher.transform(rows))
    offsets = np.arange(len(codes) + 1, dtype=np.int32) * np.int32(codes.shape[1])
    return pa.BinaryArray.from_buffers(pa.binary(), len(codes), [None, pa.py_buffer(offsets), pa.py_buffer(codes)])


def register(spark: Any, hasher: Model | None = None, **sketch_settings: Any) -> None:
    """Registers functions for Spark SQL.

    - `frosh_sketch(vector, worker)`: an aggregate, the sketch of a group of rows. The worker number must be the same for
      all rows of a group, and different in every group. A group is held in memory; `frosh.spark.sketch` holds one batch.
    - `frosh_merge(sketch)`: an aggregate, the merged sketch.
    - `frosh_fit(sketch, bits)`: the bytes of a model file; `frosh.Hasher.from_bytes` reads them.
    - `frosh_fit_quantizer(sketch, bytes)`: the same for a quantiser; `frosh.Quantizer.from_bytes` reads them.
    - `frosh_encode(vector)`: the packed code, if `hasher` is given.
    """
    given = settings(sketch_settings)

    @pandas_udf("binary")
    def frosh_sketch(vectors: pd.Series, workers: pd.Series) -> bytes:
        numbers = set(workers)
        if len(numbers) != 1:
            raise ValueError(f"one worker number for each group, got {sorted(numbers)[:3]}")
        data = sketch_part([vectors], int(numbers.pop()), given)
        return data if data is not None else b""

    @pandas_udf("binary")
    def frosh_merge(sketches: pd.Series) -> bytes:
        parts = [Sketch.from_bytes(part, n_jobs=1) for part in sketches if part]
        return Sketch.merge(*parts).to_bytes()

    @pandas_udf("binary")
    def frosh_fit(sketches: pd.Series, bits: pd.Series) -> pd.Series:
        pairs = zip(sketches, bits)
        return pd.Series([Sketch.from_bytes(part, n_jobs=1).hasher(int(n)).to_bytes() for part, n in pairs])

    @pandas_udf("binary")
    def frosh_fit_quantizer(sketches: pd.Series, lengths: pd.Series) -> pd.Series:
        pairs = zip(sketches, lengths)
        return pd.Series([Sketch.from_bytes(part, n_jobs=1).quantizer(int(n)).to_bytes() for part, n in pairs])

    functions = {
        "frosh_sketch": frosh_sketch,
        "frosh_merge": frosh_merge,
        "frosh_fit": frosh_fit,
        "frosh_fit_quantizer": frosh_fit_quantizer,
    }
    if hasher is not None:

        @pandas_udf("binary")
        def frosh_encode(vectors: pd.Series) -> pd.Series:
            if len(vectors) == 0:
                return pd.Series([], dtype=object)
            return pd.Series([code.tobytes() for code in hasher.transform(vectors)])

        functions["frosh_encode"] = frosh_encode
    for name, function in functions.items():
        spark.udf.register(name, function)
