"""Sketch: learning, merging, bytes; and the same bytes as the program."""

from __future__ import annotations

import json
import multiprocessing
import pickle

import numpy as np
import pytest

import frosh


def test_merge_leaves_its_inputs_untouched(rows):
    parts = [frosh.Sketch(sketch_rows=32, worker=i).update(rows[i::3]) for i in range(3)]
    before = [part.to_bytes() for part in parts]
    merged = parts[0].merge(parts[1], parts[2])
    assert [part.to_bytes() for part in parts] == before
    assert merged.rows == 6000 and merged.workers == (0, 1, 2) and merged.finished
    assert frosh.Sketch.merge(*reversed(parts)).to_bytes() == merged.to_bytes()
    parts[0].update(rows[:5])
    assert parts[0].rows == 2005 and merged.rows == 6000
    np.testing.assert_allclose(merged.mean, rows.mean(0, dtype=np.float64), atol=1e-4)


def test_merges_that_are_refused(rows):
    one = frosh.Sketch(sketch_rows=32).update(rows)
    with pytest.raises(ValueError, match="worker 0 is in two sketches"):
        one.merge(frosh.Sketch(sketch_rows=32).update(rows))
    assert one.merge(one, same_worker=True).rows == 12000
    with pytest.raises(ValueError, match="the dimension is"):
        one.merge(frosh.Sketch(sketch_rows=32, worker=1).update(rows[:, :9]))
    with pytest.raises(ValueError, match="the metric is"):
        one.merge(frosh.Sketch(sketch_rows=32, worker=1, metric="cosine").update(rows))
    with pytest.raises(TypeError, match="expected sketches"):
        one.merge(b"bytes")
    with pytest.raises(ValueError, match="takes no more rows"):
        one.merge(frosh.Sketch(worker=5).update(rows)).update(rows)


def test_bytes_pickle_copy_and_files(rows, tmp_path):
    learning = frosh.Sketch(sketch_rows=32, worker=3).update(rows[:777])
    whole = frosh.Sketch(sketch_rows=32, worker=3).update(rows).to_bytes()
    assert pickle.loads(pickle.dumps(learning)).update(rows[777:]).to_bytes() == whole
    assert learning.copy().update(rows[777:]).to_bytes() == whole
    assert learning.rows == 777
    again = frosh.Sketch.from_bytes(learning.to_bytes())
    assert again.to_bytes() == learning.to_bytes() and again.finished
    learning.save(tmp_path / "x.sketch")
    assert (tmp_path / "x.sketch").read_bytes() == learning.to_bytes()
    assert frosh.Sketch.load(tmp_path / "x.sketch").rows == 777
    empty = pickle.loads(pickle.dumps(frosh.Sketch(sketch_rows=32, worker=3)))
    assert empty.update(rows).to_bytes() == whole
    for wrong in [b"", b"x", learning.to_bytes()[:-1], frosh.Hasher(8).fit(rows).to_bytes()]:
        with pytest.raises(ValueError):
            frosh.Sketch.from_bytes(wrong)
    frosh.Hasher(8).fit(rows).save(tmp_path / "m.frosh")
    with pytest.raises(ValueError, match="is no sketch"):
        frosh.Sketch.load(tmp_path / "m.frosh")
    with pytest.raises(PermissionError if not _is_root() else OSError):
        learning.save("/proc/x.sketch")


def _is_root() -> bool:
    import os

    return hasattr(os, "getuid") and os.getuid() == 0


def test_facts(rows):
    sketch = frosh.Sketch(sketch_rows=64, seed=9, metric="cosine", method="osh")
    assert (sketch.rows, sketch.dim, sketch.sketch_rows) == (0, None, 64)
    sketch.update(rows)
    assert (sketch.rows, sketch.dim, sketch.seed, sketch.metric, sketch.method) == (6000, 48, 9, "cosine", "osh")
    certificate = sketch.certificate
    assert 0 <= certificate.removed <= certificate.mass and not certificate.compressed
    assert sketch.sketched.shape[1] == 48 and len(sketch.spectrum()) == len(sketch.sketched)
    assert "6000 rows of 48" in repr(sketch)
    with pytest.raises(ValueError, match="no rows"):
        frosh.Sketch().to_bytes()


def test_hashers_of_a_sketch_do_not_change_with_it(rows):
    sketch = frosh.Sketch(sketch_rows=64).update(rows[:3000])
    hasher = sketch.hasher(16)
    before = hasher.to_bytes()
    sketch.update(rows[3000:])
    assert hasher.to_bytes() == before and hasher.n_samples_seen_ == 3000
    assert hasher.singular_values_.shape == (16,)
    assert sketch.hasher(32, rotation="random").rotation_ == "random"


def _child(rows, sketch, queue):
    # Pools of the parent have no threads here: each call must make its own.
    first = sketch.update(rows[3000:]).to_bytes()
    second = frosh.Hasher(16, n_jobs=1).fit(rows).to_bytes()
    third = frosh.Hasher(16).fit(rows).to_bytes()
    queue.put((first, second == third))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_can_go_on(rows):
    sketch = frosh.Sketch(sketch_rows=32).update(rows[:3000])
    frosh.Hasher(16, n_jobs=1).fit(rows)
    frosh.Hasher(16).fit(rows)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(rows, sketch, queue), daemon=True)
    child.start()
    first, same = queue.get(timeout=60)
    child.join(timeout=60)
    assert same and first == frosh.Sketch(sketch_rows=32).update(rows).to_bytes()


# The same bytes as the program


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", "u1", "i1"])
def test_training_gives_the_programs_bytes(rows, run, tmp_path, dtype):
    X = np.clip(rows * 20, -100, 100).astype("i1").astype("u1") if dtype == "u1" else (rows * 8).astype(dtype)
    np.save(tmp_path / "x.npy", X)
    run("train", tmp_path / "x.npy", "--bits", 16, "--seed", 5, "-o", tmp_path / "m.frosh")
    hasher = frosh.Hasher(16, seed=5).fit(X)
    assert hasher.to_bytes() == (tmp_path / "m.frosh").read_bytes()
    run("encode", tmp_path / "m.frosh", tmp_path / "x.npy", "-o", tmp_path / "c.npy")
    assert (np.load(tmp_path / "c.npy") == hasher.transform(X)).all()
    run("encode", tmp_path / "m.frosh", tmp_path / "x.npy", "-o", tmp_path / "c.frosh")
    assert hasher.encode(X).to_bytes() == (tmp_path / "c.frosh").read_bytes()


@pytest.mark.parametrize("options", [{}, {"method": "osh"}, {"metric": "cosine"}, {"method": "frosh-sparse"}, {"method": "lsh"}])
def test_sketching_and_merging_gives_the_programs_bytes(rows, run, tmp_path, options):
    flags = [text for name, value in options.items() for text in (f"--{name}", value)]
    parts = []
    for worker, shard in enumerate(np.array_split(rows, 3)):
        np.save(tmp_path / f"{worker}.npy", shard)
        path = tmp_path / f"{worker}.sketch"
        run("sketch", tmp_path / f"{worker}.npy", "--worker", worker, *flags, "-o", path)
        part = frosh.Sketch(worker=worker, **options).update(shard)
        assert part.to_bytes() == path.read_bytes()
        parts.append(part)
    run("merge", *[tmp_path / f"{i}.sketch" for i in range(3)], "-o", tmp_path / "all.sketch")
    merged = frosh.Sketch.merge(*parts)
    assert merged.to_bytes() == (tmp_path / "all.sketch").read_bytes()
    run("fit", tmp_path / "all.sketch", "--bits", 16, "-o", tmp_path / "m.frosh")
    assert merged.hasher(16).to_bytes() == (tmp_path / "m.frosh").read_bytes()


def test_evaluation_gives_the_programs_figures(rows, run, tmp_path):
    np.save(tmp_path / "x.npy", rows)
    hasher = frosh.Hasher(16).fit(rows)
    hasher.save(tmp_path / "m.frosh")
    said = json.loads(run("eval", tmp_path / "m.frosh", "--base", tmp_path / "x.npy", "--held-out", 100, "--json"))
    got = frosh.evaluate(hasher, rows, held_out=100)
    assert (got["queries"], got["base"]) == (said["queries"], said["base"])
    for line in said["rankings"]:
        ours = got["rankings"][line["ranking"]]
        assert ours["map"] == pytest.approx(line["map"], rel=1e-12)
        assert ours["bytes_per_row"] == line["bytes_per_row"]
        for k in (1, 10, 100):
            assert ours["recall"][k] == pytest.approx(line["recall"][str(k)], rel=1e-12)
            assert ours["recall_reranked"][k] == pytest.approx(line["recall_reranked"][str(k)], rel=1e-12)
    labels = (rows[:, 0] > 0).astype(int)
    np.save(tmp_path / "y.npy", labels.astype(np.int32))
    said = json.loads(
        run("eval", tmp_path / "m.frosh", "--base", tmp_path / "x.npy", "--held-out", 100, "--labels", tmp_path / "y.npy", "--json")
    )
    got = frosh.evaluate(hasher, rows, held_out=100, labels=[["no", "yes"][i] for i in labels])
    for line in said["rankings"]:
        assert got["rankings"][line["ranking"]]["map"] == pytest.approx(line["map"], rel=1e-12)
        assert got["rankings"][line["ranking"]]["precision"][10] == pytest.approx(line["precision"]["10"], rel=1e-12)
