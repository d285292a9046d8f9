"""Recipes: codes in FAISS, usearch, LanceDB, DuckDB and Milvus Lite. Neighbours equal frosh's."""

from __future__ import annotations

import numpy as np
import pytest

import frosh
from conftest import need, skip_aloud

BITS, K = 64, 10


@pytest.fixture(scope="module")
def made():
    """Rows with ids that are not row numbers, their codes, queries, and frosh's neighbours with all distances."""
    rng = np.random.default_rng(3)
    X = (rng.standard_normal((3000, 96)) * np.arange(1, 97) ** -0.6).astype(np.float32)
    hasher = frosh.Hasher(n_bits=BITS).fit(X)
    ids = rng.permutation(3000) + 10_000
    codes, queries = hasher.transform(X), hasher.transform(X[:20] + 0.05)
    rows, distances = frosh.Codes.from_packed(codes, BITS).search(frosh.Codes.from_packed(queries, BITS), k=K)
    table = np.array([[bin(int.from_bytes(q.tobytes(), "little") ^ int.from_bytes(c.tobytes(), "little")).count("1") for c in codes] for q in queries])
    return X, hasher, ids, codes, queries, ids[rows], distances, table


def same(made, found_ids, found_distances) -> None:
    """The distances equal frosh's, and every id has the distance that is claimed: ties may be in another order."""
    _, _, ids, _, _, our_ids, our_distances, table = made
    found_ids, found_distances = np.asarray(found_ids), np.asarray(found_distances)
    assert found_ids.shape == our_ids.shape
    assert (np.sort(found_distances, axis=1) == our_distances).all()
    row_of = {int(number): row for row, number in enumerate(ids)}
    for query, (numbers, distances) in enumerate(zip(found_ids, found_distances)):
        assert len(set(map(int, numbers))) == K
        assert [table[query, row_of[int(n)]] for n in numbers] == list(distances)
        last = our_distances[query, -1]
        surely = {int(n) for n, d in zip(our_ids[query], our_distances[query]) if d < last}
        assert surely <= set(map(int, numbers))


def test_faiss_flat(made):
    faiss = need("faiss")
    _, _, ids, codes, queries, *_ = made
    flat = faiss.IndexBinaryFlat(BITS)
    index = faiss.IndexBinaryIDMap(flat)
    index.add_with_ids(codes, ids)
    distances, found = index.search(queries, K)
    same(made, found, distances)


def test_faiss_hnsw(made):
    faiss = need("faiss")
    _, _, ids, codes, queries, our_ids, our_distances, _ = made
    hnsw = faiss.IndexBinaryHNSW(BITS, 32)
    hnsw.hnsw.efConstruction = 200
    hnsw.add(codes)
    hnsw.hnsw.efSearch = 3000  # as many as there are rows: the graph search is exact then
    distances, rows = hnsw.search(queries, K)
    same(made, ids[rows], distances)


def test_usearch(made):
    usearch = need("usearch.index")
    _, _, ids, codes, queries, *_ = made
    index = usearch.Index(ndim=BITS, metric="hamming", dtype="b1")
    index.add(ids, frosh.swap_bit_order(codes))
    matches = index.search(frosh.swap_bit_order(queries), K, exact=True)
    same(made, matches.keys, matches.distances)
    # The order of bits is right: usearch gives back the bits that frosh has.
    stored = np.asarray(index.get(int(ids[5]), dtype="b1")).view(np.uint8).ravel()
    assert (np.unpackbits(stored) == frosh.unpack(codes[5:6], BITS)[0]).all()


def test_lancedb(made, tmp_path):
    lancedb = need("lancedb")
    pa = need("pyarrow")
    _, _, ids, codes, queries, *_ = made
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(codes.ravel(), pa.uint8()), BITS // 8)
    table = lancedb.connect(tmp_path).create_table("t", pa.table({"id": ids, "vector": vectors}))
    found = []
    for query in queries:
        hits = table.search(query.tolist(), vector_column_name="vector").distance_type("hamming").limit(K).to_arrow()
        found.append((hits["id"].to_pylist(), hits["_distance"].to_pylist()))
    same(made, [f[0] for f in found], [f[1] for f in found])


def test_duckdb(made):
    duckdb = need("duckdb")
    pa = need("pyarrow")
    _, _, ids, codes, queries, *_ = made
    connection = duckdb.connect()
    # 8 bytes as one number. For other lengths, a column of type BIT has bit_count(xor(a, b)) too.
    table = pa.table({"id": ids, "code": codes.view("<u8").ravel()})
    connection.register("vectors", table)
    sql = "SELECT id, bit_count(xor(code, ?::UBIGINT)) AS d FROM vectors ORDER BY d, id LIMIT ?"
    found = [np.array(connection.execute(sql, [int(q), K]).fetchall()) for q in queries.view("<u8").ravel()]
    same(made, [f[:, 0] for f in found], [f[:, 1] for f in found])
    text = ["".join(map(str, bits)) for bits in frosh.unpack(codes, BITS)]
    connection.register("texts", pa.table({"id": ids, "code": text}))
    sql = "SELECT id, bit_count(xor(code::BIT, ?::BIT)) AS d FROM texts ORDER BY d, id LIMIT ?"
    asked = ["".join(map(str, bits)) for bits in frosh.unpack(queries, BITS)]
    found = [np.array(connection.execute(sql, [q, K]).fetchall()) for q in asked]
    same(made, [f[:, 0] for f in found], [f[:, 1] for f in found])


def _milvus(made, folder, kind, metric, encoded, asked, **index_options):
    """Ids and distances from a collection of Milvus Lite."""
    milvus = need("pymilvus")
    client = milvus.MilvusClient(str(folder / "milvus.db"))
    try:
        schema = client.create_schema(auto_id=False)
        schema.add_field("id", milvus.DataType.INT64, is_primary=True)
        schema.add_field("code", kind, dim=BITS)
        index = client.prepare_index_params()
        index.add_index("code", metric_type=metric, **index_options)
        client.create_collection("t", schema=schema, index_params=index)
        client.insert("t", [{"id": int(i), "code": code} for i, code in zip(made[2], encoded)])
        hits = client.search("t", asked, limit=K, anns_field="code", search_params={"metric_type": metric})
        return [[hit["id"] for hit in one] for one in hits], [[hit["distance"] for hit in one] for one in hits]
    finally:
        client.close()


def test_milvus_binary_vectors(made, tmp_path):
    need("milvus_lite")
    milvus = need("pymilvus")
    encoded, asked = ([row.tobytes() for row in rows] for rows in (made[3], made[4]))
    try:
        found = _milvus(made, tmp_path, milvus.DataType.BINARY_VECTOR, "HAMMING", encoded, asked, index_type="BIN_FLAT")
    except milvus.MilvusException as error:
        if "does not support" in str(error):
            skip_aloud("this Milvus Lite has no binary vectors; the Milvus server has")
        raise
    same(made, *found)


def test_milvus_lite_without_binary_vectors(made, tmp_path):
    """Bits as numbers 0 and 1: the squared distance is the number of bits that differ."""
    need("milvus_lite")
    milvus = need("pymilvus")
    encoded, asked = (frosh.unpack(rows, BITS).astype(np.float32).tolist() for rows in (made[3], made[4]))
    found = _milvus(made, tmp_path, milvus.DataType.FLOAT_VECTOR, "L2", encoded, asked, index_type="FLAT")
    same(made, found[0], np.rint(found[1]))


def test_numpy_and_pgvector_text(made):
    """pgvector takes bits as text, the first bit first; numpy.packbits takes the most significant bit first."""
    X, hasher, _, codes, *_ = made
    bits = (X[:50] - hasher.mean_) @ hasher.components_.T.astype(np.float64) > 0
    assert (np.packbits(bits, axis=1) == frosh.swap_bit_order(codes[:50])).mean() > 0.99
    assert "".join(map(str, frosh.unpack(codes[:1], BITS)[0])) == "".join("01"[b] for b in bits[0].astype(int))
