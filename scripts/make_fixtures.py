#!/usr/bin/env python3
"""Makes small files of vectors with the tools that people use, for the tests of frosh-io.

    python3 scripts/make_fixtures.py [FOLDER]

The folder is crates/frosh-io/tests/fixtures/tools by default. Every file has ROWS rows of DIM values; value j of
row i is (i * 7 + j * 3) % 100 - 20. The versions of the tools are pinned; they are installed into `.venv`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from common import ROOT, run_inside_venv, say

PINS = [
    "numpy==2.4.6", "pandas==3.1.1", "polars==2.1.0", "pyarrow==26.0.1", "duckdb==2.0.0", "datasets==5.2.0",
    "safetensors==0.8.0", "gensim==4.4.0",
]
ROWS, DIM = 30, 8


def values() -> list[list[float]]:
    return [[float((i * 7 + j * 3) % 100 - 20) for j in range(DIM)] for i in range(ROWS)]


def text(i: int) -> str:
    """Text with what a reader may stumble over: commas, quotes and, in every tenth row, a line end."""
    return f'row {i}, said "{i}"' + ("\nand more" if i % 10 == 9 else "")


def records() -> list[dict]:
    return [{"id": f"doc{i}", "text": text(i), "emb": row} for i, row in enumerate(values())]


def flat() -> dict:
    """One column for each dimension, beside an id and a text."""
    columns = {"id": list(range(ROWS)), "text": [text(i) for i in range(ROWS)]}
    return columns | {f"f{j}": [row[j] for row in values()] for j in range(DIM)}


def polars_files(out: Path) -> None:
    import polars as pl

    lists = pl.DataFrame(records(), schema_overrides={"emb": pl.List(pl.Float32)})
    arrays = lists.with_columns(pl.col("emb").cast(pl.Array(pl.Float32, DIM)))
    lists.write_parquet(out / "polars.parquet")
    arrays.write_parquet(out / "polars_array.parquet", row_group_size=11, data_page_size=256)
    arrays.write_ipc(out / "polars.arrow", compression="zstd")
    lists.write_ipc(out / "polars_list.arrow", compression="zstd", record_batch_size=11)
    lists.write_ipc_stream(out / "polars_stream.arrow", compression="zstd")
    lists.write_ndjson(out / "polars.ndjson")
    columns = pl.DataFrame(flat(), schema_overrides={f"f{j}": pl.Float32 for j in range(DIM)})
    columns.write_parquet(out / "polars_columns.parquet", row_group_size=11)
    columns.write_ipc(out / "polars_columns.arrow", compression="zstd", record_batch_size=11)
    columns.drop("text").write_csv(out / "polars_columns.csv")


def pandas_files(out: Path) -> None:
    import pandas as pd

    lists = pd.DataFrame(records())
    lists.to_parquet(out / "pandas.parquet")
    lists.to_parquet(out / "pandas_zstd.parquet", compression="zstd")
    lists.to_feather(out / "pandas.feather")
    lists.to_json(out / "pandas.jsonl", orient="records", lines=True)
    columns = pd.DataFrame(flat())
    columns.to_parquet(out / "pandas_columns.parquet", compression="zstd")
    columns.to_csv(out / "pandas_columns.csv")
    # Columns without names, as a matrix gives them.
    pd.DataFrame(values()).astype("float32").to_csv(out / "pandas_matrix.csv")


def pyarrow_files(out: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    emb = pa.list_(pa.float32())
    doc = pa.struct([("lang", pa.string()), ("emb", emb), ("meta", pa.struct([("emb", pa.list_(pa.float16(), DIM))]))])
    rows = [{"lang": "en", "emb": row, "meta": {"emb": row}} for row in values()]
    table = pa.table({"id": list(range(ROWS)), "doc": pa.array(rows, doc), "after": list(range(ROWS))})
    rows[3], rows[17] = None, rows[17] | {"meta": None}
    nulls = table.set_column(1, "doc", pa.array(rows, doc))
    numbers = {"half": pa.float16(), "single": pa.float32(), "double": pa.float64(), "tiny": pa.int8(),
               "short": pa.int16(), "int": pa.int32(), "long": pa.int64(), "whole": pa.uint64()}
    mixed = pa.table({name: pa.array([max(row[j], 0) if name == "whole" else row[j] for row in values()], kind)
                      for j, (name, kind) in enumerate(numbers.items())})
    holes = pa.table({"a": pa.array([None if i == 5 else float(i) for i in range(ROWS)]), "b": pa.array(range(ROWS))})
    for name, content in {"nested": table, "nested_null": nulls, "mixed": mixed, "holes": holes}.items():
        pq.write_table(content, out / f"{name}.parquet", row_group_size=11, compression="zstd", data_page_version="2.0")
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(out / f"{name}.arrow", content.schema, options=options) as writer:
            writer.write_table(content, max_chunksize=11)


def duckdb_files(out: Path) -> None:
    import duckdb

    rows = ", ".join(f"({i}, {row}::FLOAT[{DIM}])" for i, row in enumerate(values()))
    query = f"SELECT * FROM (VALUES {rows}) AS t(id, emb) ORDER BY id"
    duckdb.sql(f"COPY ({query}) TO '{out}/duckdb.parquet' (FORMAT parquet, COMPRESSION zstd)")
    duckdb.sql(f"COPY ({query}) TO '{out}/duckdb_v2.parquet' (FORMAT parquet, PARQUET_VERSION V2)")
    duckdb.sql(f"COPY ({query}) TO '{out}/duckdb.jsonl' (FORMAT json)")


def datasets_files(out: Path) -> None:
    from datasets import Dataset, Features, List, Value, disable_progress_bars

    disable_progress_bars()
    features = Features({"id": Value("string"), "text": Value("string"), "emb": List(Value("float32"))})
    data = Dataset.from_list(records(), features=features)
    data.save_to_disk(out / "datasets", num_shards=2)
    data.to_parquet(out / "datasets.parquet")
    data.to_json(out / "datasets.jsonl")


def safetensors_files(out: Path) -> None:
    import numpy as np
    from safetensors import TensorSpec, serialize_file
    from safetensors.numpy import save_file

    matrix = np.array(values(), dtype=np.float32)
    save_file({"emb": matrix}, out / "one.safetensors", metadata={"format": "np"})
    save_file({"half": matrix.astype(np.float16), "ids": np.arange(ROWS), "double": matrix.astype(np.float64)},
              out / "several.safetensors")
    # bfloat16, which NumPy lacks, is the upper half of a float32.
    upper = (matrix.view(np.uint32) >> 16).astype(np.uint16)
    tensor = TensorSpec(dtype="bfloat16", shape=matrix.shape, data_ptr=upper.ctypes.data, data_len=upper.nbytes)
    serialize_file({"emb": tensor}, out / "bf16.safetensors", None)


def word_vector_files(out: Path) -> None:
    import numpy as np
    from gensim.models import KeyedVectors

    # A word may be a comment sign, a number, or (in GloVe's largest file) have blanks in it.
    words = [f"word{i}" for i in range(ROWS)]
    words[1], words[2], words[3] = "#", "42", "größe"
    vectors = KeyedVectors(DIM)
    vectors.add_vectors(words, np.array(values(), dtype=np.float32))
    vectors.save_word2vec_format(str(out / "word2vec.txt"), binary=False)
    # GloVe and fastText are programs in C++; their files are made here as they write them.
    words[4] = ". . ."
    lines = [f"{word} {' '.join(f'{x:.5g}' for x in row)}" for word, row in zip(words, values())]
    (out / "glove.8d.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = [f"{ROWS} {DIM}"] + [line + " " for line in lines]
    (out / "fasttext.vec").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    default = ROOT / "crates/frosh-io/tests/fixtures/tools"
    out = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else default
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    for make in [polars_files, pandas_files, pyarrow_files, duckdb_files, datasets_files, safetensors_files,
                 word_vector_files]:
        say(make.__name__)
        make(out)


if __name__ == "__main__":
    run_inside_venv(PINS)
    main()
