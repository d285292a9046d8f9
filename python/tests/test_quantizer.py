"""Quantizer: scikit-learn's conventions, files, searching, and the same bytes as the program."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

import frosh
from conftest import check_estimator, need

#: Rows that a fit needs.
LEAST = 1024

#: Checks of scikit-learn that cannot apply, with the reason.
NOT_APPLICABLE = {
    name: "fits at most 100 rows, and a quantiser needs 1,024"
    for name in [
        "check_dict_unchanged",
        "check_dont_overwrite_parameters",
        "check_dtype_object",
        "check_estimators_dtypes",
        "check_estimators_fit_returns_self",
        "check_estimators_nan_inf",
        "check_estimators_overwrite_params",
        "check_estimators_pickle",
        "check_f_contiguous_array_estimator",
        "check_fit2d_1feature",
        "check_fit2d_1sample",
        "check_fit2d_predict1d",
        "check_fit_check_is_fitted",
        "check_fit_idempotent",
        "check_fit_score_takes_y",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_n_features_in",
        "check_n_features_in_after_fitting",
        "check_pipeline_consistency",
        "check_positive_only_tag_during_fit",
        "check_readonly_memmap_input",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
    ]
}


class Repeating(frosh.Quantizer):
    """Learns from few rows again and again until they are enough, so that scikit-learn's checks can fit it."""

    def _learn(self, X, column, progress):
        super()._learn(X, column, progress)
        while 0 < self._fit.sketch.rows < LEAST:
            super()._learn(X, column, progress)


def test_sklearn_check_estimator():
    assert len(check_estimator(Repeating(n_bytes=4), {})) > 40
    assert len(check_estimator(frosh.Quantizer(n_bytes=4), NOT_APPLICABLE)) > 15


def new(n_bytes: int = 8, **options) -> frosh.Quantizer:
    """A quantiser with a small sample, which is fitted sooner."""
    return frosh.Quantizer(n_bytes, sample_rows=1500, **options)


@pytest.fixture(scope="module")
def quantizer(rows):
    return new().fit(rows)


def test_clone_pipeline_and_params(rows):
    sklearn = need("sklearn.base")
    pipeline = need("sklearn.pipeline")
    preprocessing = need("sklearn.preprocessing")
    model = frosh.Quantizer(4, effort=2, seed=3, metric="cosine")
    again = sklearn.clone(model)
    assert again.get_params() == model.get_params() and again is not model
    chain = pipeline.make_pipeline(preprocessing.StandardScaler(), new(4))
    assert chain.fit_transform(rows).shape == (len(rows), 4)
    chain.set_params(quantizer__n_bytes=6)
    assert chain.fit(rows).transform(rows).shape == (len(rows), 6)
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(n_bits=3)
    assert repr(model) == "Quantizer(n_bytes=4, effort=2, metric='cosine', seed=3)"


def test_batches_threads_and_types_do_not_matter(rows, quantizer):
    whole, codes = quantizer.to_bytes(), quantizer.transform(rows)
    for sizes in [700, 5999]:
        model = new(n_jobs=1 + sizes % 2)
        for at in range(0, len(rows), sizes):
            model.partial_fit(rows[at : at + sizes])
        assert model.to_bytes() == whole
        assert (model.transform(rows) == codes).all()
    assert (quantizer.transform(iter([rows[:1], rows[1:300], rows[300:]])) == codes).all()
    assert (quantizer.transform(np.asfortranarray(rows.astype(np.float64))) == codes).all()
    half = rows[:1200].astype(np.float16)
    assert new(4).fit(half).to_bytes() == new(4).fit(half.astype(np.float64)).to_bytes()


def test_fitted_attributes(rows, quantizer):
    assert quantizer.n_samples_seen_ == 6000 and quantizer.n_features_in_ == 48
    np.testing.assert_allclose(quantizer.mean_, rows.mean(0, dtype=np.float64), rtol=1e-4, atol=1e-4)
    assert quantizer.n_components_ == 48
    exact = np.linalg.svd(rows - rows.mean(0), compute_uv=False)
    assert quantizer.singular_values_.shape == (48,)
    assert (quantizer.singular_values_[:4] > exact[:4] * 0.8).all() and (np.diff(quantizer.singular_values_) <= 0).all()
    np.testing.assert_allclose(quantizer.explained_variance_ratio_.sum(), 1, atol=1e-6)
    assert quantizer.choice_["forecast"]["k"] == 10 and len(quantizer.choice_["slopes"]) == 2
    assert quantizer.ranking_ == "estimated" and quantizer.oversample_ >= 1
    assert quantizer.sketch_.rows == 6000 and quantizer.sketch_.sketch_rows == 128
    assert not hasattr(quantizer, "components_") and not hasattr(quantizer, "rotation_")


def test_unfitted_quantizers_say_so():
    model = frosh.Quantizer()
    for use in [lambda: model.transform([[1.0]]), lambda: model.mean_, lambda: model.encode([[1.0]]), lambda: frosh.Index(model)]:
        with pytest.raises((frosh.NotFittedError, ValueError), match="not fitted yet"):
            use()
    assert not hasattr(model, "mean_")


def test_pickle_and_copy_go_on_bit_for_bit(rows, quantizer):
    begun = new().partial_fit(rows[:2500])
    for other in [pickle.loads(pickle.dumps(begun)), copy.deepcopy(begun)]:
        assert other.partial_fit(rows[2500:]).to_bytes() == quantizer.to_bytes()
    again = pickle.loads(pickle.dumps(quantizer))
    assert again.to_bytes() == quantizer.to_bytes()
    assert (again.transform(rows[:500]) == quantizer.transform(rows[:500])).all()
    assert pickle.loads(pickle.dumps(frosh.Quantizer(5, effort=3))).effort == 3


def test_impossible_settings_fail_before_the_first_row(rows):
    for wrong, message in [
        (dict(n_bytes=0), "n_bytes = 0"),
        (dict(n_bytes=3), "have 4 to 64"),
        (dict(n_bytes=65), "have 4 to 64"),
        (dict(n_bytes=2**62), "have 4 to 64"),
        (dict(method="pca"), "is not a method"),
        (dict(method="lsh"), "LSH learns no directions"),
        (dict(metric="dot"), "is not a metric"),
        (dict(sketch_rows=7), "sketch_rows = 7"),
        (dict(sample_rows=1000), "needs 1024"),
        (dict(n_jobs=0), "n_jobs = 0"),
        (dict(effort=0), "effort = 0"),
        (dict(effort=33), "effort = 33"),
    ]:
        model = frosh.Quantizer(**wrong)
        with pytest.raises(ValueError, match=message):
            model.fit(rows)
        assert not hasattr(model, "mean_")
    for wrong in [dict(n_bytes="8"), dict(n_bytes=8.0), dict(effort="8"), dict(effort=True)]:
        with pytest.raises(TypeError):
            frosh.Quantizer(**wrong).fit(rows)
    with pytest.raises(ValueError, match="sampled rows = 1023 is not possible: a quantiser needs 1024"):
        frosh.Quantizer().fit(rows[: LEAST - 1])
    with pytest.raises(ValueError, match="sampled rows = 50 is not possible: a quantiser needs 1024"):
        frosh.Sketch().update(rows[:50]).quantizer()
    with pytest.raises(ValueError, match="effort = 40"):
        frosh.Sketch().update(rows).quantizer(effort=40)


def test_models_from_files(rows, quantizer, tmp_path):
    path = tmp_path / "q.frosh"
    quantizer.save(path)
    for loaded in [frosh.Quantizer.load(path), frosh.load(path, n_jobs=1), frosh.Quantizer.from_bytes(quantizer.to_bytes())]:
        assert isinstance(loaded, frosh.Quantizer) and loaded.n_bytes == 8
        assert (loaded.transform(rows[:500]) == quantizer.transform(rows[:500])).all()
        assert loaded.id_ == quantizer.id_ and loaded.n_features_in_ == 48 and loaded.n_samples_seen_ == 6000
        with pytest.raises(ValueError, match="cannot learn"):
            loaded.partial_fit(rows)
    hasher = frosh.Hasher(8).fit(rows)
    hasher.save(tmp_path / "h.frosh")
    assert isinstance(frosh.load(tmp_path / "h.frosh"), frosh.Hasher)
    with pytest.raises(ValueError, match="q.frosh: this is the model of a quantiser, not of a hasher: use frosh.Quantizer"):
        frosh.Hasher.load(path)
    with pytest.raises(ValueError, match="h.frosh: this is the model of a hasher"):
        frosh.Quantizer.load(tmp_path / "h.frosh")
    with pytest.raises(ValueError, match="this is the model of a hasher"):
        frosh.Quantizer.from_bytes(hasher.to_bytes())
    with pytest.raises(FileNotFoundError):
        frosh.load(tmp_path / "none.frosh")
    (tmp_path / "bad.frosh").write_bytes(b"no model" * 100)
    with pytest.raises(ValueError, match="bad.frosh"):
        frosh.load(tmp_path / "bad.frosh")
    with pytest.raises(ValueError):
        frosh.Quantizer.from_bytes(quantizer.to_bytes()[:-5])


def test_feature_names(rows, quantizer):
    pandas = need("pandas")
    frame = pandas.DataFrame(rows, columns=[f"x{i}" for i in range(48)])
    model = new().fit(frame)
    assert list(model.feature_names_in_) == list(frame.columns)
    assert model.to_bytes() == quantizer.to_bytes()
    with pytest.raises(ValueError, match="same order"):
        model.transform(frame[frame.columns[::-1]])
    for use in [lambda: model.transform(rows[:10]), lambda: copy.deepcopy(model).partial_fit(rows[:10])]:
        with pytest.warns(UserWarning, match="but Quantizer was fitted with feature names") as caught:
            use()
        assert caught[0].filename == __file__
    assert list(model.get_feature_names_out())[:2] == ["quantizer0", "quantizer1"]
    with pytest.raises(ValueError, match="X has 3 features, but Quantizer is expecting 48"):
        model.transform(rows[:, :3])


# Searching


def test_search_finds_neighbours(rows, quantizer):
    codes = quantizer.encode(rows)
    assert (codes.packed == quantizer.transform(rows)).all()
    assert (len(codes), codes.n_bytes, codes.n_bits, codes.bytes_per_row) == (6000, 8, 64, 8)
    assert codes.is_quantized and not codes.has_factors and "8 bytes" in repr(codes)
    ids, distances = codes.search(rows[:100], k=10)
    exact, squares = frosh.exact_neighbours(rows, rows[:100], k=10)
    found = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact, ids)])
    signs, _ = frosh.Hasher(48).fit(rows).encode(rows).search(rows[:100], k=10)
    assert found > np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact, signs)])
    assert (np.diff(distances) >= 0).all()
    # Estimates of squared distances: of all the rows found, they are right on average.
    true = ((rows[:100, None].astype(np.float64) - rows[ids]) ** 2).sum(2)
    assert abs(distances.mean() / true.mean() - 1) < 0.2
    some, _ = codes.search(rows[:20], k=15, filter=np.arange(0, 6000, 2))
    assert some.shape == (20, 15) and (some % 2 == 0).all()
    assert codes.search(rows[:2], k=15, filter=[3, 5])[0].shape == (2, 2)
    assert (codes.search(rows[:100], k=10, ranking="estimated")[0] == ids).all()
    for wrong in [
        lambda: codes.within(rows[:2], 3),
        lambda: codes.search(rows[:2], ranking="hamming"),
        lambda: codes.search(rows[:2], ranking="asymmetric"),
    ]:
        with pytest.raises(ValueError, match="needs sign bits, and these are codes of a quantiser"):
            wrong()
    with pytest.raises(ValueError, match="is not a ranking"):
        codes.search(rows[:2], ranking="best")
    with pytest.raises(ValueError, match="pass the queries as vectors"):
        codes.search(codes)


def test_effort_changes_codes_and_not_the_model(rows, quantizer):
    exact, _ = frosh.exact_neighbours(rows, rows[:1000], k=10)
    model = pickle.loads(pickle.dumps(quantizer))
    recalls, coded = [], {}
    for effort in [1, 8, 32]:
        codes = model.set_params(effort=effort).encode(rows)
        assert model.to_bytes() == quantizer.to_bytes() and codes.hasher_id == quantizer.id_
        coded[effort] = codes.packed
        found, _ = codes.search(rows[:1000], k=10)
        recalls.append([len(set(a) & set(b)) / 10 for a, b in zip(exact, found)])
    assert (coded[8] == quantizer.transform(rows)).all()
    assert (coded[1] != coded[8]).any() and (coded[8] != coded[32]).any()
    # More effort describes rows better. What this gains in recall is small beside chance: four standard errors over the queries.
    gain = np.subtract(recalls[2], recalls[0])
    assert gain.mean() > -4 * gain.std() / len(gain) ** 0.5
    with pytest.raises(ValueError, match="effort = 99"):
        model.set_params(effort=99).transform(rows[:2])


def test_codes_travel(rows, quantizer, tmp_path):
    codes = quantizer.encode(rows)
    want = codes.search(rows[:5], k=4)
    codes.save(tmp_path / "c.frosh")
    for other in [
        pickle.loads(pickle.dumps(codes)),
        frosh.Codes.from_bytes(codes.to_bytes(), hasher=quantizer),
        frosh.Codes.load(tmp_path / "c.frosh", hasher=quantizer),
        frosh.Codes.from_packed(quantizer.transform(rows), hasher=quantizer),
    ]:
        got = other.search(rows[:5], k=4)
        assert other.is_quantized and (got[0] == want[0]).all() and (got[1] == want[1]).all()
    loaded = frosh.Codes.load(tmp_path / "c.frosh")
    with pytest.raises(ValueError, match="do not have their hasher"):
        loaded.search(rows[:5])
    with pytest.raises(ValueError, match="different hashers"):
        loaded.search(rows[:5], hasher=new(seed=1).fit(rows))
    with pytest.raises(ValueError):
        loaded.search(rows[:5], hasher=frosh.Hasher(48).fit(rows))


def test_indexes(rows, quantizer, tmp_path, run):
    with frosh.Index(quantizer, tmp_path / "i", vectors="f32") as index:
        assert index.add(rows, ids=np.arange(6000) * 3) == 0 and len(index) == 6000
        assert index.remove([0, 3]) == 2
        index.add(rows[:2], ids=[10**12, 7_000_000])
        ids, distances = index.search(rows[:2], k=1)
        assert ids.tolist() == [[10**12], [7_000_000]] and (distances == 0).all()
        exact, _ = frosh.exact_neighbours(rows, rows[50:80], k=5)
        found, _ = index.search(rows[50:80], k=5, rerank=40)
        assert np.mean([len(set(a * 3) & set(b)) / 5 for a, b in zip(exact, found)]) > 0.9
        some, _ = index.search(rows[:3], k=5, filter=range(300, 600))
        assert ((some >= 300) & (some < 600)).all()
        assert not index.has_factors and index.bytes_per_row == 8 + 4 * 48
        index.compact()
        codes_only, _ = index.search(rows[10:14], k=3, rerank=0)
    opened = frosh.Index.open(tmp_path / "i")
    assert isinstance(opened.model, frosh.Quantizer) and opened.model.id_ == quantizer.id_
    assert (opened.model.transform(rows[:100]) == quantizer.transform(rows[:100])).all()
    assert (opened.search(rows[10:14], k=3, rerank=0)[0] == codes_only).all()
    for wrong in [lambda: opened.within(rows[:1], 3), lambda: opened.search(rows[:1], ranking="hamming")]:
        with pytest.raises(ValueError, match="needs sign bits"):
            wrong()
    with pytest.raises(ValueError, match="use its property model"):
        opened.hasher
    np.save(tmp_path / "q.npy", rows[10:14])
    said = run("index", "search", tmp_path / "i", "--queries", tmp_path / "q.npy", "-k", 3, "--oversample", 0, "--json")
    assert [json.loads(line)["ids"] for line in said.splitlines()] == codes_only.tolist()
    hashed = frosh.Index(frosh.Hasher(8).fit(rows))
    assert isinstance(hashed.model, frosh.Hasher) and hashed.hasher.id_ == hashed.model.id_


def test_evaluate_options(rows, quantizer):
    result = frosh.evaluate(quantizer, rows[100:], rows[:100], truth=10, k=(5,), oversample=2)
    assert list(result["rankings"]) == ["estimated"] and set(result["rankings"]["estimated"]["recall"]) == {5}
    assert result["bits"] == 64 and result["rankings"]["estimated"]["bytes_per_row"] == 8
    for wrong in [dict(ranking="hamming"), dict(ranking="asymmetric"), dict(ranking="best"), dict(truth=0)]:
        with pytest.raises(ValueError):
            frosh.evaluate(quantizer, rows, **wrong)


# The same bytes as the program


@pytest.mark.parametrize("dtype, options", [("f4", {}), ("f2", {"metric": "cosine"}), ("u1", {"method": "osh"}), ("f8", {})])
def test_training_gives_the_programs_bytes(rows, run, tmp_path, dtype, options):
    X = np.clip(rows * 20, 0, 255).astype("u1") if dtype == "u1" else (rows * 8).astype(dtype)
    np.save(tmp_path / "x.npy", X)
    flags = [text for name, value in options.items() for text in (f"--{name}", value)]
    run("train", tmp_path / "x.npy", "--bytes", 6, "--seed", 5, "--reservoir", 1500, *flags, "-o", tmp_path / "m.frosh")
    model = new(6, seed=5, **options).fit(X)
    assert model.to_bytes() == (tmp_path / "m.frosh").read_bytes()
    for effort in [1, 8, 20]:
        run("encode", tmp_path / "m.frosh", tmp_path / "x.npy", "--effort", effort, "-o", tmp_path / "c.npy")
        assert (np.load(tmp_path / "c.npy") == model.set_params(effort=effort).transform(X)).all()
    run("encode", tmp_path / "m.frosh", tmp_path / "x.npy", "-o", tmp_path / "c.frosh")
    codes = model.set_params(effort=8).encode(X)
    assert codes.to_bytes() == (tmp_path / "c.frosh").read_bytes()
    np.save(tmp_path / "q.npy", X[:3])
    said = run("search", tmp_path / "m.frosh", tmp_path / "c.frosh", "--queries", tmp_path / "q.npy", "-k", 4, "--json")
    assert [json.loads(line)["ids"] for line in said.splitlines()] == codes.search(X[:3], k=4)[0].tolist()


def test_merging_and_fitting_gives_the_programs_bytes(rows, run, tmp_path):
    parts = []
    for worker, shard in enumerate(np.array_split(rows, 3)):
        np.save(tmp_path / f"{worker}.npy", shard)
        run("sketch", tmp_path / f"{worker}.npy", "--worker", worker, "--reservoir", 1500, "-o", tmp_path / f"{worker}.sketch")
        parts.append(frosh.Sketch(worker=worker, sample_rows=1500).update(shard))
    run("merge", *[tmp_path / f"{i}.sketch" for i in range(3)], "-o", tmp_path / "all.sketch")
    run("fit", tmp_path / "all.sketch", "--bytes", 5, "-o", tmp_path / "m.frosh")
    merged = frosh.Sketch.merge(*parts)
    model = merged.quantizer(5)
    assert model.to_bytes() == (tmp_path / "m.frosh").read_bytes()
    assert model.n_bytes == 5 and model.sketch_.rows == 6000 and model.n_samples_seen_ == 6000


def test_models_of_a_sketch_do_not_change_with_it(rows):
    sketch = frosh.Sketch(sample_rows=1500).update(rows[:3000])
    model = sketch.quantizer(4, effort=2)
    before = model.to_bytes()
    sketch.update(rows[3000:])
    assert model.to_bytes() == before and model.n_samples_seen_ == 3000 and model.effort == 2


def test_evaluation_gives_the_programs_figures(rows, quantizer, run, tmp_path):
    np.save(tmp_path / "x.npy", rows)
    quantizer.save(tmp_path / "m.frosh")
    said = json.loads(run("eval", tmp_path / "m.frosh", "--base", tmp_path / "x.npy", "--held-out", 100, "--json"))
    got = frosh.evaluate(quantizer, rows, held_out=100)
    assert (got["queries"], got["base"], got["bits"]) == (said["queries"], said["base"], said["bits"])
    assert [line["ranking"] for line in said["rankings"]] == list(got["rankings"]) == ["estimated"]
    line, ours = said["rankings"][0], got["rankings"]["estimated"]
    assert ours["map"] == pytest.approx(line["map"], rel=1e-12)
    assert ours["bytes_per_row"] == line["bytes_per_row"] == 8
    for k in (1, 10, 100):
        assert ours["recall"][k] == pytest.approx(line["recall"][str(k)], rel=1e-12)
        assert ours["recall_reranked"][k] == pytest.approx(line["recall_reranked"][str(k)], rel=1e-12)
