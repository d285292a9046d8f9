"""Hasher: scikit-learn's conventions, pickling, fitted attributes."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import frosh
from conftest import check_estimator, need

#: Checks of scikit-learn that cannot apply, with the reason.
NOT_APPLICABLE: dict[str, str] = {}


def test_sklearn_check_estimator():
    assert len(check_estimator(frosh.Hasher(n_bits=1), NOT_APPLICABLE)) > 35


def test_clone_pipeline_and_params(rows):
    sklearn = need("sklearn.base")
    pipeline = need("sklearn.pipeline")
    preprocessing = need("sklearn.preprocessing")
    hasher = frosh.Hasher(16, seed=3, metric="cosine")
    again = sklearn.clone(hasher)
    assert again.get_params() == hasher.get_params() and again is not hasher
    chain = pipeline.make_pipeline(preprocessing.StandardScaler(), frosh.Hasher(n_bits=16))
    codes = chain.fit_transform(rows)
    assert codes.shape == (len(rows), 2)
    chain.set_params(hasher__n_bits=8)
    assert chain.fit(rows).transform(rows).shape == (len(rows), 1)
    with pytest.raises(ValueError, match="Invalid parameter"):
        hasher.set_params(bits=3)
    assert repr(hasher) == "Hasher(n_bits=16, metric='cosine', seed=3)"


def test_batches_threads_and_types_do_not_matter(rows):
    whole = frosh.Hasher(16).fit(rows).to_bytes()
    for sizes in [1, 7, 1000, 5999]:
        hasher = frosh.Hasher(16, n_jobs=1 + sizes % 2)
        for at in range(0, len(rows), sizes):
            hasher.partial_fit(rows[at : at + sizes])
        assert hasher.to_bytes() == whole
    as_list = frosh.Hasher(16).fit(rows[:50].tolist())
    assert as_list.to_bytes() == frosh.Hasher(16).fit(rows[:50].astype(np.float64)).to_bytes()


def test_fitted_attributes(rows):
    hasher = frosh.Hasher(16).fit(rows)
    assert hasher.n_samples_seen_ == 6000 and hasher.n_features_in_ == 48
    np.testing.assert_allclose(hasher.mean_, rows.mean(0, dtype=np.float64), rtol=1e-4, atol=1e-4)
    assert hasher.components_.shape == (16, 48) and hasher.components_.dtype == np.float32
    np.testing.assert_allclose(hasher.components_ @ hasher.components_.T, np.eye(16), atol=1e-3)
    exact = np.linalg.svd(rows - rows.mean(0), compute_uv=False)[:16]
    assert (hasher.singular_values_ <= exact * 1.1).all() and (hasher.singular_values_[:4] > exact[:4] * 0.8).all()
    assert (np.diff(hasher.singular_values_) <= 0).all()
    ratios = hasher.explained_variance_ratio_
    exact_ratios = exact**2 / ((rows - rows.mean(0)) ** 2).sum()
    np.testing.assert_allclose(ratios.sum(), exact_ratios.sum(), atol=0.05)
    bits = frosh.unpack(hasher.transform(rows), 16)
    expected = (rows - hasher.mean_) @ hasher.components_.T.astype(np.float64) > 0
    assert (bits == expected).mean() > 0.9999
    assert hasher.choice_["forecast"]["k"] == 10
    assert hasher.sketch_.rows == 6000


def test_lsh_has_no_variance_ratio(rows):
    hasher = frosh.Hasher(128, method="lsh").fit(rows)
    assert hasher.transform(rows).shape == (6000, 16)
    assert not hasattr(hasher, "explained_variance_ratio_")


def test_unfitted_hashers_say_so():
    hasher = frosh.Hasher()
    for use in [lambda: hasher.transform([[1.0]]), lambda: hasher.mean_, lambda: hasher.to_bytes()]:
        with pytest.raises((frosh.NotFittedError, ValueError), match="not fitted yet"):
            use()
    assert not hasattr(hasher, "mean_")


def test_pickle_and_copy_go_on_bit_for_bit(rows):
    hasher = frosh.Hasher(16).partial_fit(rows[:2500])
    for other in [pickle.loads(pickle.dumps(hasher)), copy.deepcopy(hasher)]:
        assert other.partial_fit(rows[2500:]).to_bytes() == frosh.Hasher(16).fit(rows).to_bytes()
    fitted = frosh.Hasher(16).fit(rows)
    again = pickle.loads(pickle.dumps(fitted))
    assert again.to_bytes() == fitted.to_bytes()
    assert (again.transform(rows) == fitted.transform(rows)).all()
    assert (again.singular_values_ == fitted.singular_values_).all()
    assert pickle.loads(pickle.dumps(frosh.Hasher(5))).n_bits == 5


def test_partial_fit_after_use_gives_the_same_as_one_fit(rows):
    hasher = frosh.Hasher(16).partial_fit(rows[:3000])
    first = hasher.transform(rows[:10])
    mean = hasher.mean_
    hasher.partial_fit(rows[3000:])
    assert not np.array_equal(hasher.mean_, mean)
    assert hasher.to_bytes() == frosh.Hasher(16).fit(rows).to_bytes()
    assert first.shape == (10, 2)


def test_impossible_settings_fail_before_the_first_row(rows):
    for wrong, message in [
        (dict(n_bits=0), "n_bits = 0"),
        (dict(n_bits=49), "the dimension of the rows allows 48"),
        (dict(n_bits=16, method="pca"), "is not a method"),
        (dict(n_bits=16, metric="dot"), "is not a metric"),
        (dict(n_bits=16, rotation="spin"), "is not a rotation"),
        (dict(n_bits=16, sketch_rows=7), "sketch_rows = 7"),
        (dict(n_bits=16, sketch_rows=30), "half the sketch rows allows 15"),
        (dict(n_bits=16, n_jobs=0), "n_jobs = 0"),
        (dict(n_bits=16, rotation="itq", sample_rows=0), "needs a reservoir"),
    ]:
        hasher = frosh.Hasher(**wrong)
        with pytest.raises(ValueError, match=message):
            hasher.fit(rows)
    with pytest.raises(TypeError):
        frosh.Hasher("64").fit(rows)
    with pytest.raises((TypeError, OverflowError)):
        frosh.Hasher(seed=-1).fit(rows)


def test_models_from_files_encode_and_do_not_learn(rows, tmp_path):
    hasher = frosh.Hasher(16).fit(rows)
    hasher.save(tmp_path / "m.frosh")
    loaded = frosh.Hasher.load(tmp_path / "m.frosh")
    assert (loaded.transform(rows) == hasher.transform(rows)).all()
    assert loaded.id_ == hasher.id_ and loaded.n_features_in_ == 48
    with pytest.raises(ValueError, match="cannot learn"):
        loaded.partial_fit(rows)
    with pytest.raises(FileNotFoundError):
        frosh.Hasher.load(tmp_path / "none.frosh")
    with pytest.raises(IsADirectoryError):
        frosh.Hasher.load(tmp_path)
    (tmp_path / "bad.frosh").write_bytes(b"no model" * 100)
    with pytest.raises(ValueError, match="bad.frosh"):
        frosh.Hasher.load(tmp_path / "bad.frosh")
    with pytest.raises(ValueError):
        frosh.Hasher.from_bytes(hasher.to_bytes()[:-5])


def test_feature_names(rows):
    pandas = need("pandas")
    frame = pandas.DataFrame(rows, columns=[f"x{i}" for i in range(48)])
    hasher = frosh.Hasher(16).fit(frame)
    assert list(hasher.feature_names_in_) == list(frame.columns)
    assert hasher.to_bytes() == frosh.Hasher(16).fit(rows).to_bytes()
    with pytest.raises(ValueError, match="same order"):
        hasher.transform(frame[frame.columns[::-1]])
    with pytest.warns(UserWarning, match="valid feature names"):
        hasher.transform(rows)
    assert list(hasher.get_feature_names_out()) == ["hasher0", "hasher1"]
