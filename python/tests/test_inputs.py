"""Inputs of every kind: types, layouts, tables, tensors. Same rows, same bytes."""

from __future__ import annotations

import array
import io

import numpy as np
import pytest

import frosh
from conftest import need
from frosh import _inputs


def bytes_of(X, **options) -> bytes:
    return frosh.Sketch(sketch_rows=32).update(X, **options).to_bytes()


@pytest.fixture(scope="module")
def want(rows):
    return bytes_of(rows)


@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "f8", "u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "?", ">f4", ">f8", ">f2", ">i4", "g", "O"]
)
def test_every_type_is_learned_as_its_values(rows, dtype):
    whole = np.clip(np.round(rows[:1500] * 8) + 60, 0, 120)
    X = (whole > 60).astype(dtype) if dtype == "?" else whole.astype(dtype)
    reference = X.astype(np.float64)
    assert bytes_of(X) == bytes_of(reference)
    hasher = frosh.Hasher(16).fit(X)
    assert (hasher.transform(X) == hasher.transform(reference)).all()


def test_bfloat16(rows):
    ml_dtypes = need("ml_dtypes")
    X = rows[:1000].astype(ml_dtypes.bfloat16)
    assert bytes_of(X) == bytes_of(X.astype(np.float32))
    assert bytes_of(X[::2]) == bytes_of(X[::2].astype(np.float32))


@pytest.mark.parametrize(
    "view",
    [
        lambda X: np.asfortranarray(X),
        lambda X: np.repeat(X, 2, axis=0)[::2],
        lambda X: np.repeat(X, 3, axis=1)[:, ::3],
        lambda X: X[::-1][::-1],
        lambda X: np.ascontiguousarray(X.T).T,
        lambda X: np.lib.stride_tricks.as_strided(X, X.shape, X.strides, writeable=False),
        lambda X: np.concatenate([X, X], axis=1)[:, : X.shape[1]],
    ],
)
def test_every_layout_is_read(rows, want, view):
    assert bytes_of(view(rows)) == want


def test_unaligned_and_read_only(rows, want):
    raw = bytearray(1 + rows.nbytes)
    raw[1:] = rows.tobytes()
    unaligned = np.frombuffer(raw, np.uint8)[1:].view(np.float32).reshape(rows.shape)
    assert not unaligned.flags.aligned and bytes_of(unaligned) == want
    fixed = rows.copy()
    fixed.flags.writeable = False
    assert bytes_of(fixed) == want


def test_contiguous_rows_are_not_copied(rows):
    for X in [rows, rows.astype("f8"), rows.astype("f2"), rows.astype("i1"), rows[100:4000]]:
        got = [piece for _, piece in _inputs.pieces(X)]
        assert all(np.shares_memory(piece, X) for piece in got)
        assert sum(map(len, got)) == len(X)
    strided = [piece for _, piece in _inputs.pieces(np.repeat(rows, 40, axis=0)[::2])]
    assert max(piece.nbytes for piece in strided) <= _inputs._COPY_BYTES


def test_memory_maps_and_buffers(rows, want, tmp_path):
    np.save(tmp_path / "x.npy", rows)
    assert bytes_of(np.load(tmp_path / "x.npy", mmap_mode="r")) == want
    assert bytes_of(memoryview(rows)) == want
    flat = array.array("f", rows.ravel().tolist())
    assert bytes_of(memoryview(flat).cast("B").cast("f", rows.shape)) == want


def test_lists_iterators_and_files(rows, want, tmp_path):
    assert bytes_of(rows[:100].tolist()) == bytes_of(rows[:100].astype(np.float64))
    assert bytes_of(iter([rows[:17], rows[17:18], rows[18:18], rows[18:]])) == want
    np.save(tmp_path / "x.npy", rows)
    assert bytes_of(frosh.read(tmp_path / "x.npy")) == want


def test_pyarrow(rows, want):
    pa = need("pyarrow")
    flat = pa.array(rows.ravel())
    fixed = pa.FixedSizeListArray.from_arrays(flat, 48)
    assert bytes_of(fixed) == want
    got = [piece for _, piece in _inputs.pieces(fixed)]
    assert np.shares_memory(got[0], flat.to_numpy())
    sliced = fixed.slice(1000, 2000)
    assert bytes_of(sliced) == bytes_of(rows[1000:3000])
    chunked = pa.chunked_array([fixed.slice(0, 10), fixed.slice(10)])
    assert bytes_of(chunked) == want
    table = pa.table({"id": np.arange(len(rows)), "v": chunked})
    assert bytes_of(table) == want and bytes_of(table, column="v") == want
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=700))
    assert bytes_of(reader, column="v") == want
    lists = pa.array(rows[:500].tolist(), pa.list_(pa.float32()))
    assert bytes_of(lists) == bytes_of(rows[:500])
    assert bytes_of(lists.slice(7, 100)) == bytes_of(rows[7:107])
    large = lists.cast(pa.large_list(pa.float32()))
    assert bytes_of(large) == bytes_of(rows[:500])
    columns = pa.table({f"x{i}": rows[:, i] for i in range(48)})
    assert bytes_of(columns) == want
    for kind in [pa.float16(), pa.float64(), pa.int8(), pa.uint8(), pa.int32()]:
        whole = np.clip(np.round(rows[:300] * 4) + 40, 0, 100)
        typed = pa.FixedSizeListArray.from_arrays(pa.array(whole.ravel().astype(kind.to_pandas_dtype())), 48)
        assert bytes_of(typed) == bytes_of(whole)


def test_arrow_data_that_is_refused():
    pa = need("pyarrow")
    for value, error, message in [
        (pa.array([[1.0, 2.0], None]), ValueError, "row 1 is null"),
        (pa.array([[1.0, 2.0], [3.0, None]]), ValueError, "row 1, column 1 is null"),
        (pa.array([[1.0, 2.0], [3.0]]), ValueError, "row 1 has 1 values"),
        (pa.array(["a", "b"]), TypeError, "lists of numbers"),
        (pa.array([1.0, 2.0]), TypeError, "lists of numbers"),
        (pa.array([["a"]]), TypeError, "lists of numbers"),
        (pa.table({"a": [[1.0]], "b": [[2.0]]}), ValueError, "choose one of a, b"),
        (pa.table({"a": ["x"]}), ValueError, "expected one column of lists"),
    ]:
        with pytest.raises(error, match=message):
            bytes_of(value)
    with pytest.raises(ValueError, match='there is no column "z"'):
        bytes_of(pa.table({"a": [[1.0]]}), column="z")
    with pytest.raises(ValueError, match="no rows"):
        bytes_of(pa.array([], pa.list_(pa.float32(), 4)))


def test_polars(rows, want):
    pl = need("polars")
    series = pl.Series("v", rows, dtype=pl.Array(pl.Float32, 48))
    assert bytes_of(series) == want
    frame = pl.DataFrame({"id": np.arange(len(rows)), "v": series})
    assert bytes_of(frame) == want and bytes_of(frame, column="v") == want
    lists = frame.with_columns(pl.col("v").cast(pl.List(pl.Float32)))
    assert bytes_of(lists, column="v") == want
    assert bytes_of(lists.slice(11, 500), column="v") == bytes_of(rows[11:511])
    assert bytes_of(pl.DataFrame({f"x{i}": rows[:, i] for i in range(48)})) == want
    with pytest.raises(TypeError, match="collect"):
        bytes_of(frame.lazy())


def test_pandas(rows, want):
    pd = need("pandas")
    assert bytes_of(pd.DataFrame(rows)) == want
    arrays = pd.Series(list(rows))
    assert bytes_of(arrays) == want
    frame = pd.DataFrame({"id": range(len(rows)), "v": list(rows)})
    assert bytes_of(frame, column="v") == want
    assert bytes_of(frame[["v"]]) == want
    lists = pd.Series(rows[:200].tolist())
    assert bytes_of(lists) == bytes_of(rows[:200].astype(np.float64))
    with pytest.raises(ValueError, match="equal length"):
        bytes_of(pd.Series([[1.0, 2.0], [3.0]]))
    with pytest.raises(ValueError, match="no column"):
        bytes_of(frame, column="w")
    pa = need("pyarrow")
    arrow = pd.Series(pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 48), dtype=pd.ArrowDtype(pa.list_(pa.float32(), 48)))
    assert bytes_of(arrow) == want


def test_duckdb(rows, want):
    duckdb = need("duckdb")
    pa = need("pyarrow")
    table = pa.table({"id": np.arange(len(rows)), "v": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 48)})
    connection = duckdb.connect()
    connection.register("t", table)
    assert bytes_of(connection.sql("SELECT v FROM t ORDER BY id")) == want
    assert bytes_of(connection.sql("SELECT id, v FROM t ORDER BY id"), column="v") == want


def test_torch(rows, want):
    torch = need("torch")
    assert bytes_of(torch.from_numpy(rows)) == want
    assert bytes_of(torch.from_numpy(rows).requires_grad_()) == want
    assert bytes_of(torch.from_numpy(rows).T.contiguous().T) == want
    half = torch.from_numpy(rows).bfloat16()
    assert bytes_of(half) == bytes_of(half.float().numpy())
    for model in [frosh.Hasher(16), frosh.Quantizer(4, sample_rows=1024)]:
        assert (model.fit(torch.from_numpy(rows)).transform(half) == model.fit(rows).transform(half.float().numpy())).all()


def test_jax(rows, want):
    jnp = need("jax.numpy")
    assert bytes_of(jnp.asarray(rows)) == want
    half = jnp.asarray(rows[:500], dtype=jnp.bfloat16)
    assert bytes_of(half) == bytes_of(np.asarray(half.astype(jnp.float32)))


class Tensor:
    """A tensor of another library, which has DLPack only."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack(rows, want):
    assert bytes_of(Tensor(rows)) == want

    class Elsewhere(Tensor):
        device = "cuda:0"

        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(TypeError, match="on the CPU, got one on cuda:0"):
        bytes_of(Elsewhere(rows))


def test_sparse_matrices_are_refused(rows):
    sparse = need("scipy.sparse")
    with pytest.raises(TypeError, match="[Ss]parse"):
        bytes_of(sparse.csr_matrix(rows[:10]))


def test_rows_in_errors_are_numbers_of_the_whole_input(rows):
    X = np.tile(rows, (50, 1))
    X[250_123, 7] = np.nan
    sketch = frosh.Sketch(sketch_rows=32)
    with pytest.raises(ValueError, match="row 250123, column 7: NaN"):
        sketch.update(X)
    assert sketch.rows == 250_123
    assert sketch.to_bytes() == bytes_of(X[:250_123])
    hasher = frosh.Hasher(8).fit(rows)
    with pytest.raises(ValueError, match="row 250123, column 7: NaN"):
        hasher.transform(X)
    with pytest.raises(ValueError, match="row 250123, column 7: NaN"):
        hasher.transform(X[:, ::-1][:, ::-1])


def test_reading_files(rows, tmp_path):
    np.save(tmp_path / "a.npy", rows)
    np.savetxt(tmp_path / "b.csv", rows[:50], delimiter=",")
    vectors = frosh.read(tmp_path / "a.npy")
    assert (vectors.rows, vectors.dim, vectors.dtype) == (6000, 48, np.float32)
    assert (np.concatenate(list(vectors)) == rows).all()
    assert (np.concatenate(list(vectors)) == rows).all()  # a second time
    for dtype in ["f2", "f8", "u1", "i1"]:
        np.save(tmp_path / "t.npy", rows.astype(dtype))
        assert frosh.read(tmp_path / "t.npy").dtype == dtype
        assert (np.concatenate(list(frosh.read(tmp_path / "t.npy"))) == rows.astype(dtype)).all()
    text = np.concatenate(list(frosh.read([tmp_path / "b.csv"])))
    np.testing.assert_allclose(text, rows[:50], rtol=1e-6)
    many = frosh.read([tmp_path / "a.npy", tmp_path / "b.csv"])
    assert many.rows in (6050, None) and sum(map(len, many)) == 6050
    bad = rows[:10].copy()
    bad[3] = np.inf
    np.save(tmp_path / "bad.npy", bad)
    skipping = frosh.read(tmp_path / "bad.npy", skip_bad=True)
    assert sum(map(len, skipping)) == 9 and skipping.left_out == 1


def test_reading_errors(rows, tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        frosh.read(tmp_path / "none.npy")
    assert error.value.filename == str(tmp_path / "none.npy")
    (tmp_path / "x.raw").write_bytes(bytes(64))
    with pytest.raises(ValueError, match="dim="):
        frosh.read(tmp_path / "x.raw")
    assert frosh.read(tmp_path / "x.raw", dim=4, dtype="f16").rows == 8
    with pytest.raises(ValueError, match="is not an element type"):
        frosh.read(tmp_path / "x.raw", dim=4, dtype="f128")
    with pytest.raises(ValueError):
        frosh.read(tmp_path / "x.raw", format="nothing")
    with pytest.raises(ValueError):
        frosh.read([])
    with pytest.raises(TypeError, match="frosh.read"):
        bytes_of("x.npy")
    with pytest.raises(ValueError, match="standard input"):
        frosh.read("-")
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY\x01\x00")
    with pytest.raises(ValueError, match="torn.npy"):
        list(frosh.read(tmp_path / "torn.npy"))


def test_progress(rows):
    calls = []
    bytes_of(rows, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (6000, 6000) and [done for done, _ in calls] == sorted(done for done, _ in calls)
    with pytest.raises(ZeroDivisionError):
        bytes_of(rows, progress=lambda done, total: 1 / 0)
    with pytest.raises(TypeError, match="progress"):
        bytes_of(rows, progress=3)
    tqdm = need("tqdm")
    text = io.StringIO()
    with tqdm.tqdm(total=len(rows), file=text) as bar:
        frosh.Hasher(8).fit(rows, progress=bar)
        assert bar.n == len(rows)
    frosh.Hasher(8).fit(rows, progress=True)
