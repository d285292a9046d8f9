"""Shared fixtures: data, and the `frosh` program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import frosh

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"


def skip_aloud(why: str) -> None:
    """Skips a test, and says so past pytest's capture of output."""
    name = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
    print(f"SKIPPED {name}: {why}", file=sys.__stderr__, flush=True)
    pytest.skip(why)


def need(name: str):
    """Imports an optional package, or skips aloud."""
    try:
        return __import__(name, fromlist=["_"])
    except ImportError as error:
        skip_aloud(f"{name} is not installed ({error})")


#: Checks that scikit-learn itself leaves out, with its reason.
LEFT_OUT = {"check_array_api_input": "only with SCIPY_ARRAY_API set"}


def check_estimator(estimator, not_applicable: dict[str, str]) -> list[str]:
    """Runs scikit-learn's checks. Exactly those that cannot apply may fail. Returns the names of the others."""
    checks = need("sklearn.utils.estimator_checks")
    results = checks.check_estimator(estimator, expected_failed_checks=not_applicable, on_skip=None, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed, failed
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(not_applicable)
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= set(LEFT_OUT)
    return [r["check_name"] for r in results if r["status"] == "passed"]


@pytest.fixture(autouse=True)
def _names_for_doctests(doctest_namespace):
    doctest_namespace["np"] = np
    doctest_namespace["frosh"] = frosh


@pytest.fixture(scope="session")
def rows() -> np.ndarray:
    """Clustered rows with a decaying spectrum."""
    rng = np.random.default_rng(7)
    decay = np.arange(1, 49, dtype=np.float32) ** -0.7
    centres = rng.standard_normal((20, 48), dtype=np.float32) * 2
    noise = rng.standard_normal((6000, 48), dtype=np.float32)
    return ((centres[rng.integers(20, size=6000)] + noise) * decay).astype(np.float32)


@pytest.fixture(scope="session")
def program() -> str:
    """The `frosh` program: from FROSH_PROGRAM, the root's target folder, or the path."""
    found = [os.environ.get("FROSH_PROGRAM"), ROOT / "target/release/frosh", shutil.which("frosh")]
    for path in found:
        if path and Path(path).is_file():
            return str(path)
    skip_aloud("there is no frosh program: build it with cargo build --release, or set FROSH_PROGRAM")
    raise AssertionError


@pytest.fixture
def run(program):
    """Runs the program, quietly."""

    def run(*args) -> str:
        done = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
