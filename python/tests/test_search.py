"""Codes, exact neighbours, evaluation and index folders."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

import frosh


@pytest.fixture(scope="module")
def hasher(rows):
    return frosh.Hasher(32).fit(rows)


def hamming(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """All distances between two sets of packed codes, by definition."""
    bits = lambda x: np.unpackbits(x, axis=1).astype(np.int64)  # noqa: E731
    x, y = bits(a), bits(b)
    return x @ (1 - y).T + (1 - x) @ y.T


def test_hamming_search_follows_the_definition(rows, hasher):
    codes = hasher.encode(rows)
    packed = hasher.transform(rows)
    assert (codes.packed == packed).all() and len(codes) == 6000 and codes.n_bits == 32
    table = hamming(packed[:20], packed)
    ids, distances = codes.search(rows[:20], k=15, ranking="hamming")
    for query in range(20):
        order = np.lexsort((np.arange(6000), table[query]))[:15]
        assert (ids[query] == order).all() and (distances[query] == table[query][order]).all()
    again = codes.search(hasher.encode(rows[:20], factors=False), k=15)
    assert (again[0] == ids).all()
    near = codes.within(rows[:20], radius=4)
    for query, (found, bits) in enumerate(near):
        assert set(found) == set(np.flatnonzero(table[query] <= 4)) and (bits <= 4).all()
    some, _ = codes.search(rows[:20], k=15, filter=np.arange(0, 6000, 2))
    assert (some % 2 == 0).all()
    few, _ = codes.search(rows[:2], k=15, filter=[3, 5])
    assert few.shape == (2, 2)
    assert codes.search(rows[:2], k=0)[0].shape == (2, 0)


def test_codes_travel(rows, hasher, tmp_path):
    codes = hasher.encode(rows, factors=True)
    want = codes.search(rows[:5], k=4, ranking="estimated")
    for other in [
        pickle.loads(pickle.dumps(codes)),
        frosh.Codes.from_bytes(codes.to_bytes(), hasher=hasher),
    ]:
        got = other.search(rows[:5], k=4, ranking="estimated")
        assert (got[0] == want[0]).all() and (got[1] == want[1]).all()
    codes.save(tmp_path / "c.frosh")
    loaded = frosh.Codes.load(tmp_path / "c.frosh")
    assert loaded.hasher_id == hasher.id_
    with pytest.raises(ValueError, match="do not have their hasher"):
        loaded.search(rows[:5])
    assert (loaded.search(rows[:5], k=4, hasher=hasher)[0] == codes.search(rows[:5], k=4)[0]).all()
    with pytest.raises(ValueError, match="different hashers"):
        loaded.search(frosh.Hasher(32, seed=1).fit(rows).encode(rows[:5]))
    with pytest.raises(ValueError, match="factors"):
        hasher.encode(rows, factors=False).search(rows[:5], ranking="estimated")
    foreign = frosh.Codes.from_packed(np.array([[1], [3]], np.uint8), 8, name=5)
    assert foreign.search(foreign, k=2)[1].tolist() == [[0, 1], [0, 1]]
    with pytest.raises(ValueError):
        frosh.Codes.from_packed(np.array([[128]], np.uint8), 7)
    plain = frosh.Codes.from_packed(hasher.transform(rows), hasher=hasher)
    want = hasher.encode(rows, factors=False).search(rows[:5], k=4, ranking="asymmetric")
    assert (plain.search(rows[:5], k=4, ranking="asymmetric")[0] == want[0]).all()
    with pytest.raises(ValueError, match="of 4 columns"):
        frosh.Codes.from_packed(hasher.transform(rows)[:, :3], hasher=hasher)
    with pytest.raises(ValueError, match="n_bits = 8"):
        frosh.Codes.from_packed(hasher.transform(rows), 8, hasher=hasher)
    with pytest.raises(TypeError, match="number of bits"):
        frosh.Codes.from_packed(hasher.transform(rows))
    with pytest.raises(TypeError):
        frosh.Codes()


def test_bits_pack_and_swap(rows, hasher):
    packed = hasher.transform(rows)
    bits = frosh.unpack(packed, 32)
    assert (frosh.pack(bits) == packed).all()
    assert (frosh.swap_bit_order(packed) == np.packbits(bits, axis=1)).all()
    assert (frosh.swap_bit_order(frosh.swap_bit_order(packed)) == packed).all()
    with pytest.raises(ValueError):
        frosh.unpack(packed.astype(int), 32)


def test_exact_neighbours_follow_the_definition(rows):
    ids, distances = frosh.exact_neighbours(rows, rows[:10].astype(np.float64), k=7)
    for query in range(10):
        exact = ((rows.astype(np.float64) - rows[query].astype(np.float64)) ** 2).sum(1)
        order = np.argsort(exact, kind="stable")[:7]
        assert (ids[query] == order).all()
        np.testing.assert_allclose(distances[query], exact[order], rtol=1e-9, atol=1e-9)
    assert frosh.exact_neighbours(rows, rows[:3], k=0)[0].shape == (3, 0)
    assert frosh.exact_neighbours(rows[:4], rows[:3], k=10**9)[0].shape == (3, 4)


def test_evaluate_options(rows, hasher):
    result = frosh.evaluate(hasher, rows[100:], rows[:100], truth=10, k=(5,), ranking="hamming", oversample=2)
    assert list(result["rankings"]) == ["hamming"] and set(result["rankings"]["hamming"]["recall"]) == {5}
    for wrong in [dict(truth="x"), dict(truth=0), dict(truth=1.5), dict(k=(0,)), dict(ranking="best"), dict(held_out=4000),
                  dict(labels=[1]), dict(queries=rows[:5], held_out=4)]:
        with pytest.raises(ValueError):
            frosh.evaluate(hasher, rows, **wrong)
    with pytest.raises(TypeError, match="iterator"):
        frosh.evaluate(hasher, iter([rows]))


# Index folders


def test_index_adds_removes_and_searches(rows, hasher, tmp_path):
    index = frosh.Index(hasher, tmp_path / "index", vectors="f32")
    assert index.add(rows) == 0 and len(index) == 6000
    assert index.remove([0, 1, 99999]) == 2 and 0 not in index and 2 in index
    index.add(rows[:2], ids=[10**12, 7_000_000])
    ids, distances = index.search(rows[:2], k=1)
    assert ids.tolist() == [[10**12], [7_000_000]] and (distances == 0).all()
    with pytest.raises(ValueError, match="id 5 is there already"):
        index.add(rows[:1], ids=[5])
    assert index.add(rows[10:11], ids=[5], replace=True) == 1 and len(index) == 6000
    exact, _ = frosh.exact_neighbours(rows, rows[50:60], k=5)
    found, _ = index.search(rows[50:60], k=5, rerank=200)
    assert np.mean([len(set(a) & set(b)) / 5 for a, b in zip(exact, found)]) > 0.9
    assert index.search(rows[:3], k=5, rerank=0, ranking="hamming")[1].max() <= 32
    some, _ = index.search(rows[:3], k=5, filter=range(100, 200))
    assert ((some >= 100) & (some < 200)).all()
    near = index.within(rows[20:22], 3)
    assert 20 in near[0][0] and (near[0][1] <= 3).all()
    assert index.segments > 1 and index.removed == 3
    index.compact()
    assert (index.segments, index.removed) == (1, 0)
    index.close()
    with pytest.raises(ValueError, match="closed"):
        index.search(rows[:1])


def test_readers_see_the_index_as_it_was(rows, hasher, tmp_path):
    with frosh.Index(hasher, tmp_path / "i") as index:
        index.add(rows[:100])
        reader = frosh.Index.open(tmp_path / "i")
        index.add(rows[100:200])
        assert len(reader) == 100 and len(index) == 200 and not reader.writable
        with pytest.raises(ValueError, match="reading only"):
            reader.add(rows[:1])
        with pytest.raises((ValueError, OSError)):
            frosh.Index.open(tmp_path / "i", "a")
    with frosh.Index.open(tmp_path / "i", "a") as again:
        again.add(rows[200:210])
        assert len(again) == 210 and again.hasher.id_ == hasher.id_
        again.check()
    with pytest.raises(ValueError, match="mode"):
        frosh.Index.open(tmp_path / "i", "w")
    with pytest.raises(FileNotFoundError):
        frosh.Index.open(tmp_path / "none")


def test_rows_are_added_all_or_none(rows, hasher):
    index = frosh.Index(hasher)
    index.add(rows[:50])
    bad = rows[:100].copy()
    bad[70, 3] = np.nan
    with pytest.raises(ValueError, match="row 70, column 3"):
        index.add(bad, ids=range(1000, 1100))
    with pytest.raises(ValueError, match="one for each row"):
        index.add(rows[:10], ids=range(1000, 1009))
    with pytest.raises(ValueError, match="one for each row"):
        index.add(rows[:10], ids=range(1000, 1011))
    with pytest.raises(ValueError, match="not negative"):
        index.add(rows[:1], ids=[-1])
    with pytest.raises(TypeError):
        index.add(rows[:1], ids=[1.5])
    with pytest.raises(ValueError, match="there already"):
        index.add(rows[:2], ids=[77, 77])
    assert len(index) == 50


def test_saving_an_index(rows, hasher, tmp_path):
    index = frosh.Index(hasher, vectors="f16")
    index.add(rows)
    index.save(tmp_path / "kept")
    want = index.search(rows[:5], k=3)
    with pytest.raises(FileExistsError):
        index.save(tmp_path / "kept")
    index.close()
    kept = frosh.Index.open(tmp_path / "kept")
    got = kept.search(rows[:5], k=3)
    assert (got[0] == want[0]).all() and kept.vectors == "f16" and kept.bytes_per_row >= 4 + 96


def test_the_program_searches_the_index(rows, hasher, tmp_path, run):
    with frosh.Index(hasher, tmp_path / "i") as index:
        index.add(rows, ids=np.arange(6000) * 3)
        want, _ = index.search(rows[:4], k=3, ranking="hamming")
    np.save(tmp_path / "q.npy", rows[:4])
    said = run("index", "search", tmp_path / "i", "--queries", tmp_path / "q.npy", "-k", 3, "--rank", "hamming", "--json")
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["ids"] for line in lines] == want.tolist()


def test_ids_may_be_strings(rows, hasher, tmp_path):
    names = [f"row {i} größe" for i in range(200)]
    with frosh.Index(hasher, tmp_path / "named", vectors="f32") as index:
        index.add(rows[:100], ids=names[:100])
        index.add(rows[100:200], ids=np.array(names[100:]))
        ids, distances = index.search(rows[:200], k=1)
        assert ids[:, 0].tolist() == names and (distances == 0).all()
        assert names[7] in index and "none" not in index
        assert index.remove([names[7], "none"]) == 1 and names[7] not in index
        some, _ = index.search(rows[:2], k=5, filter=[names[50], names[60], "none"])
        assert sorted(some[0]) == [names[50], names[60]]
        assert index.search(rows[:2], k=5, filter=[])[0].shape == (2, 0)
        near = index.within(rows[20:22], 0)
        assert names[20] in near[0][0] and names[21] in near[1][0]
        with pytest.raises(ValueError, match="there already"):
            index.add(rows[:1], ids=[names[3]])
        assert index.add(rows[:1], ids=[names[3]], replace=True) == 1
        for wrong in [["a", 3], "abc"]:
            with pytest.raises(TypeError):
                index.add(rows[:2], ids=wrong)
        with pytest.raises(ValueError):
            index.add(rows[:2], ids=[1, 2])
        with pytest.raises(ValueError):
            index.add(rows[:1], ids=[""])
        assert len(index) == 199
    assert frosh.Index.open(tmp_path / "named").search(rows[:1], k=1)[0].tolist() == [[names[0]]]
