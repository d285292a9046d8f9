#!/usr/bin/env python3
"""Check that frosh's codes are FAISS's, and that its model files are everybody's.

Trains, encodes and searches with the program, then
- loads the codes into faiss.IndexBinaryFlat, which must find the same neighbours at the same distances;
- opens the model with the safetensors package and reproduces the codes with NumPy.

    python3 scripts/check_faiss.py                       # made-up vectors
    python3 scripts/check_faiss.py vectors.npy           # your own

The pinned packages go into `.venv` at the root of the repository (Python 3.11 or later). The exit code
is 0 if everything agrees.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from common import ROOT, run_inside_venv

PINS = ["numpy==2.4.6", "faiss-cpu==1.15.1", "safetensors==0.8.0"]
BITS, QUERIES, K = 64, 200, 20
CARGO = ["cargo", "run", "--release", "--quiet", "-p", "frosh-cli", "--"]


def frosh(*arguments: str) -> str:
    done = subprocess.run([*CARGO, *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


def main() -> None:
    run_inside_venv(PINS)
    import faiss
    import numpy as np
    from safetensors.numpy import load_file

    folder = Path(tempfile.mkdtemp(prefix="frosh-check-"))
    if len(sys.argv) > 1:
        rows = np.load(sys.argv[1], mmap_mode="r")
        rows = np.asarray(rows[:100_000], dtype=np.float32)
    else:
        random = np.random.default_rng(1)
        spectrum = np.arange(1, 129) ** -0.5
        rows = (random.standard_normal((20_000, 128)) * spectrum + 3).astype(np.float32)
    base, queries = rows[QUERIES:], rows[:QUERIES]
    paths = {name: str(folder / name) for name in ["base.npy", "q.npy", "model", "codes", "codes.npy"]}
    np.save(paths["base.npy"], base)
    np.save(paths["q.npy"], queries)
    bits = min(BITS, rows.shape[1])
    frosh("train", paths["base.npy"], "--bits", str(bits), "-o", paths["model"])
    frosh("encode", paths["model"], paths["base.npy"], "-o", paths["codes"])
    frosh("encode", paths["model"], paths["base.npy"], "-o", paths["codes.npy"])
    frosh("encode", paths["model"], paths["q.npy"], "-o", str(folder / "q-codes.npy"))
    found = frosh("search", paths["model"], paths["codes"], "--queries", paths["q.npy"], "-k", str(K), "--json")
    found = [json.loads(line) for line in found.splitlines()]

    codes, asked = np.load(paths["codes.npy"]), np.load(folder / "q-codes.npy")
    index = faiss.IndexBinaryFlat(codes.shape[1] * 8)
    index.add(codes)
    distances, ids = index.search(asked, K)
    ties = 0
    for q, line in enumerate(found):
        assert line["query"] == q
        assert line["distances"] == distances[q].tolist(), f"query {q}: distances differ"
        # Neighbours at the last distance may be others of the same distance; all nearer ones are the same.
        nearer = distances[q] < distances[q][-1]
        ours = np.array(line["ids"])
        assert set(ours[nearer]) == set(ids[q][nearer]), f"query {q}: neighbours differ"
        ties += set(ours) != set(ids[q])
    print(f"FAISS finds the same {K} neighbours at the same distances for {QUERIES} queries over {len(codes)} codes")
    print(f"  (for {ties} of them another choice among rows at the last distance)")

    model = load_file(paths["model"])
    mean, projection = model["mean"], model["projection"]
    projected = (base.astype(np.float64) - mean) @ projection.astype(np.float64)
    expected = np.packbits(projected > 0, axis=1, bitorder="little")
    differ = np.unpackbits(expected ^ codes, axis=1, bitorder="little")[:, :bits].astype(bool)
    # Only a projection that rounding can push over zero may give another bit.
    scale = np.linalg.norm(base - mean, axis=1).mean()
    largest = np.abs(projected[differ]).max(initial=0.0)
    assert largest < 1e-5 * scale, f"a bit differs where the projection is {largest}"
    print(f"NumPy reproduces the codes from the model file: {differ.sum()} of {differ.size} bits differ,")
    print(f"  all where the projection is below {1e-5 * scale:.1e} (rounding)")


if __name__ == "__main__":
    main()
