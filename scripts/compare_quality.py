#!/usr/bin/env python3
"""Compare the quality of codes of equal bytes: frosh, exact PCA and FAISS, on real data.

For each set, 1,000 queries (a seeded permutation) are taken out; everybody learns from all other rows, on one
thread (PQ and OPQ from a sample, see --pq-rows), and codes them. Measured against exact neighbours: MAP
(relevant are the nearest 2 %; average precision over the whole ranking, ties in expectation), recall@10 (the
share of the 10 nearest among the first 10, and among the first 100, which re-ranking finds), their standard
errors over the queries, and the processor's seconds for training.

    python3 scripts/compare_quality.py                                  # hours, nearly all of it FAISS's quantisers
    python3 scripts/compare_quality.py --without FAISS                  # a few minutes
    python3 scripts/compare_quality.py --set glove100 --bytes 8 --only FROSH
    python3 scripts/compare_quality.py --data . --set mine              # your own rows: mine/base.npy
    python3 scripts/compare_quality.py --json cells.json --markdown     # goes on where it stopped

FAISS's additive quantisers (RQ, LSQ) code all bytes and store no norm: they are ranked by the exact distance
to the decoded rows. A cell of theirs that takes longer than --limit seconds is left out, with those of more bytes,
and the table says so.

Every cell has the build that made it: a hash of the program, or the versions of the packages. Cells of other builds
are measured again, so that one table is of one build.

Bytes count everything that is stored for each vector. Methods that need as many dimensions as bits take as
many bits as there are, and the table says the bytes. PQ wants a multiple of its bytes: zeros are added.

The data is looked for in ../shared/data (--data). The pinned packages go into `.venv` at the root of the
repository (Python 3.11 or later). The exit code is 0 whether or not the goal is met.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from common import ROOT, run_inside_venv, say

if TYPE_CHECKING:
    import numpy as np

# One thread for everybody; maths libraries read these once, when they load.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

PINS = ["numpy==2.4.6", "faiss-cpu==1.15.1"]
SETS = ["mnist", "cifar10-gist512", "debian-minilm384", "glove100", "bigann10k-sift128"]
BYTES = [8, 16, 32]
QUERIES, SEED = 1000, 1
SHARE, K, OVERSAMPLE = 0.02, 10, 10
# The factors of a vector: one byte in frosh, two floats in FAISS.
FROSH_FACTORS, RABITQ_FACTORS = 1, 8
FROSH = ROOT / "target/release/frosh"
OURS, PLAIN = "FROSH refined, estimated", "FROSH + ITQ, estimated"
BYTES_OURS = "FROSH quantiser"
# The same from the merged sketches of five workers, and with another seed: how much the merge changes, and how much chance.
MERGED, RESEEDED = "FROSH quantiser, five workers", "FROSH quantiser, other seed"
WORKERS = 5
ADDITIVE = ["FAISS RQ", "FAISS LSQ"]
ONE_BIT = ["FAISS ITQ,LSH", "FAISS RaBitQ, qb 0", "FAISS RaBitQ, qb 4"]

Cell = dict[str, Any]


class Set:
    """A data set with its queries and what is true about them."""

    def __init__(self, name: str, data: Path, folder: Path) -> None:
        import numpy as np

        self.name = name
        rows = np.concatenate([read_idx(data / name / f"{part}-images-idx3-ubyte.gz")
                               for part in ("train", "t10k")]) if name == "mnist" \
            else np.load(data / name / "base.npy")
        order = np.random.default_rng(SEED).permutation(len(rows))
        # Rows keep their order in the stream: only the queries are taken out.
        queries, base = np.sort(order[:QUERIES]), np.sort(order[QUERIES:])
        self.base_file, self.query_file = folder / "base.npy", folder / "queries.npy"
        np.save(self.base_file, rows[base])
        np.save(self.query_file, rows[queries])
        self.base, self.queries = rows[base].astype(np.float32), rows[queries].astype(np.float32)
        self.n, self.dim = self.base.shape
        self.truth = self.nearest(int(SHARE * self.n + 1e-9))
        # Of the expected average precision of ties only harmonic numbers are left.
        self.harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, self.n + 1))])

    def nearest(self, count: int) -> np.ndarray:
        """The exact nearest rows of each query, nearest first, equal ones by number."""
        import numpy as np

        base = self.base.astype(np.float64)
        squares = (base * base).sum(axis=1)
        found = np.empty((QUERIES, count), dtype=np.int64)
        for first in range(0, QUERIES, 50):
            part = self.queries[first : first + 50].astype(np.float64)
            distances = squares - 2.0 * (part @ base.T)
            for q, row in enumerate(distances, first):
                # A margin of candidates, so that equal distances at the end go by number too.
                near = np.sort(np.argpartition(row, min(count + 50, self.n - 1))[: count + 50])
                found[q] = near[np.argsort(row[near], kind="stable")[:count]]
        return found

    def measure(self, scores: Callable[[int, int], np.ndarray]) -> Cell:
        """The measures of a ranking; `scores(first, last)` gives a row of scores for each of those queries."""
        import numpy as np

        precision, plain, over = np.zeros(QUERIES), np.zeros(QUERIES), np.zeros(QUERIES)
        for first in range(0, QUERIES, 50):
            for q, row in enumerate(scores(first, first + 50), first):
                ranked, relevant = np.sort(row), np.sort(row[self.truth[q]])
                values, k = np.unique(relevant, return_counts=True)
                before = np.searchsorted(ranked, values, "left")
                t = np.searchsorted(ranked, values, "right") - before
                hits = np.cumsum(k) - k
                slope = (k - 1) / np.maximum(t - 1, 1)
                rest = hits + 1 - slope * (before + 1)
                sums = k / t * (slope * t + rest * (self.harmonic[before + t] - self.harmonic[before]))
                precision[q] = sums.sum() / len(relevant)
                near = row[self.truth[q][:K]]
                before, last = np.searchsorted(ranked, near, "left"), np.searchsorted(ranked, near, "right")
                plain[q] = np.clip((K - before) / (last - before), 0, 1).mean()
                over[q] = np.clip((K * OVERSAMPLE - before) / (last - before), 0, 1).mean()
        error = lambda values: float(values.std(ddof=1) / QUERIES**0.5)  # noqa: E731
        return {"map": precision.mean(), "recall": plain.mean(), "reranked": over.mean(),
                "map_error": error(precision), "recall_error": error(plain)}

    def hamming(self, base: np.ndarray, queries: np.ndarray) -> Cell:
        """The measures of packed codes."""
        import numpy as np

        def words(codes: np.ndarray) -> np.ndarray:
            return np.pad(codes, ((0, 0), (0, -codes.shape[1] % 8))).view(np.uint64)

        base, queries = words(np.ascontiguousarray(base)), words(np.ascontiguousarray(queries))

        def scores(first: int, last: int) -> np.ndarray:
            return np.stack([np.bitwise_count(base ^ q).sum(axis=1, dtype=np.int16)
                             for q in queries[first:last]])

        return self.measure(scores)


def read_idx(path: Path) -> np.ndarray:
    import numpy as np

    with gzip.open(path) as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 784)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the processor, ours and of programs that we run: another program on the machine hardly shows.
    On one core, where the system can keep a process on one, since a few parts do not know of one thread."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if cores:
        os.sched_setaffinity(0, {max(cores)})
    start = os.times()
    result = work()
    seconds = sum(os.times()[:4]) - sum(start[:4])
    if cores:
        os.sched_setaffinity(0, cores)
    return seconds, result


# Each of the methods below returns its cells by name; bytes and bits may be fewer than asked for.


def frosh(data: Set, size: int, factors: int, learning: list[str], rankings: dict[str, str]) -> dict[str, Cell]:
    """Trains with these options and measures by the program: from ranking to the cell's name."""
    bits = 8 * (size - factors)
    if "lsh" not in learning:
        bits = min(bits, data.dim)
    return frosh_model(data, bits, ["--bits", str(bits), *learning], rankings)


def frosh_quantizer(data: Set, size: int) -> dict[str, Cell]:
    return frosh_model(data, 8 * size, ["--bytes", str(size)], {"estimated": BYTES_OURS})


def frosh_reseeded(data: Set, size: int) -> dict[str, Cell]:
    return frosh_model(data, 8 * size, ["--bytes", str(size), "--seed", "7"], {"estimated": RESEEDED})


def frosh_merged(data: Set, size: int) -> dict[str, Cell]:
    """A fifth of the rows for each worker; their sketches are merged."""
    import numpy as np

    model = data.base_file.with_name("model.frosh")
    rows, sketches = np.load(data.base_file, mmap_mode="r"), []
    for worker, part in enumerate(np.array_split(rows, WORKERS)):
        shard = data.base_file.with_name(f"shard{worker}.npy")
        np.save(shard, part)
        sketches.append(str(shard.with_suffix(".sketch")))
        run_frosh("sketch", str(shard), "--worker", str(worker), "--bytes", str(size), "-o", sketches[-1])
    merged = str(data.base_file.with_name("merged.sketch"))
    run_frosh("merge", *sketches, "-o", merged)
    seconds, _ = timed(lambda: run_frosh("fit", merged, "--bytes", str(size), "-o", str(model), "--force"))
    return evaluated(data, model, 8 * size, {"estimated": MERGED}, seconds)


def run_frosh(*arguments: str) -> Any:
    done = subprocess.run([str(FROSH), *arguments, "--json", "--quiet"], check=True, capture_output=True)
    return json.loads(done.stdout)


def frosh_model(data: Set, bits: int, learning: list[str], rankings: dict[str, str]) -> dict[str, Cell]:
    model = data.base_file.with_name("model.frosh")
    # The reading of the file counts too; to FAISS the rows are given in memory.
    seconds, _ = timed(lambda: run_frosh("train", str(data.base_file), "--threads", "1", *learning, "-o", str(model),
                                         "--force"))
    return evaluated(data, model, bits, rankings, seconds)


def evaluated(data: Set, model: Path, bits: int, rankings: dict[str, str], seconds: float) -> dict[str, Cell]:
    """The cells of a model, by the program."""
    result = run_frosh("eval", str(model), "--base", str(data.base_file), "--queries", str(data.query_file),
                       "-k", str(K), "--oversample", str(OVERSAMPLE), "--truth", f"{100 * SHARE:g}%",
                       "--rank", ",".join(rankings))
    return {rankings[line["ranking"]]: {
        "bits": bits, "bytes": line["bytes_per_row"], "map": line["map"],
        "recall": line["recall"][str(K)], "reranked": line["recall_reranked"][str(K)],
        "train": seconds} for line in result["rankings"]}


def exact_pca(data: Set, size: int) -> dict[str, Cell]:
    import numpy as np

    bits = min(8 * size, data.dim)

    def train() -> tuple[np.ndarray, np.ndarray]:
        mean = data.base.mean(axis=0, dtype=np.float64).astype(np.float32)
        centred = data.base - mean
        return mean, np.linalg.eigh((centred.T @ centred).astype(np.float64))[1][:, ::-1][:, :bits]

    seconds, (mean, directions) = timed(train)
    rotation, triangle = np.linalg.qr(np.random.default_rng(SEED).standard_normal((bits, bits)))
    rotation *= np.sign(np.diag(triangle))
    cells = {}
    for name, w in (("PCA sign", directions), ("PCA, random rotation", directions @ rotation)):
        w = w.astype(np.float32)
        pack = lambda rows: np.packbits((rows - mean) @ w > 0, axis=1, bitorder="little")  # noqa: E731
        cells[name] = data.hamming(pack(data.base), pack(data.queries))
        cells[name] |= {"bits": bits, "bytes": -(-bits // 8), "train": seconds}
    return cells


def faiss_index(data: Set, factory: str, rows: np.ndarray, tune: Callable[[Any], None] = lambda _: None
                ) -> tuple[Any, float]:
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.index_factory(rows.shape[1], factory)
    tune(index)
    seconds, _ = timed(lambda: index.train(rows))
    return index, seconds


def all_scores(data: Set, index: Any, queries: np.ndarray) -> Callable[[int, int], np.ndarray]:
    """Scores of a FAISS index, of which a search for all rows gives every one."""
    import numpy as np

    def scores(first: int, last: int) -> np.ndarray:
        distances, ids = index.search(queries[first:last], data.n)
        out = np.full(distances.shape, np.inf, dtype=np.float32)
        np.put_along_axis(out, ids, distances, axis=1)
        return out

    return scores


def faiss_itq(data: Set, size: int) -> dict[str, Cell]:
    bits = min(8 * size, data.dim)
    index, seconds = faiss_index(data, f"ITQ{bits},LSH", data.base)
    cell = data.hamming(index.sa_encode(data.base), index.sa_encode(data.queries))
    return {"FAISS ITQ,LSH": cell | {"bits": bits, "bytes": index.sa_code_size(), "train": seconds}}


def faiss_rabitq(data: Set, size: int) -> dict[str, Cell]:
    import faiss
    import numpy as np

    bits = min(8 * (size - RABITQ_FACTORS), data.dim)
    # With as many bits as dimensions a rotation is all that is needed.
    index, seconds = faiss_index(data, f"{'PCAR' if bits < data.dim else 'RR'}{bits},RaBitQ", data.base)
    index.add(data.base)
    inner = faiss.downcast_index(index.index)
    facts = {"bits": bits, "bytes": index.sa_code_size(), "train": seconds}
    # Bits of a query's value: 4 is FAISS's default, 0 keeps floats.
    inner.qb = 4
    cells = {ONE_BIT[2]: data.measure(all_scores(data, index, data.queries)) | facts}
    # With floats FAISS goes through the bits one by one; a product gives the same, which is checked.
    inner.qb = 0
    turn = faiss.downcast_VectorTransform(index.chain.at(0))
    centre = faiss.vector_to_array(inner.center)
    u, v = turn.apply(data.base) - centre, turn.apply(data.queries) - centre
    squares, signs = (u * u).sum(axis=1), np.where(u > 0, np.float32(1), np.float32(-1))
    gain = squares / np.maximum(np.abs(u).sum(axis=1), 1e-30)

    def scores(first: int, last: int) -> np.ndarray:
        part = v[first:last]
        # FAISS takes what is estimated below zero as zero.
        return np.maximum(squares + (part * part).sum(axis=1)[:, None] - 2 * gain * (part @ signs.T), 0)

    distances, ids = index.search(data.queries[:10], 100)
    if not np.allclose(np.take_along_axis(scores(0, 10), ids, axis=1), distances, rtol=1e-3,
                       atol=1e-3 * squares.mean()):
        sys.exit("FAISS's estimates with float queries are not what this script takes them for")
    return cells | {ONE_BIT[1]: data.measure(scores) | facts}


def faiss_pq(data: Set, size: int, rows: int, rotate: bool) -> dict[str, Cell]:
    import faiss
    import numpy as np

    pad = ((0, 0), (0, -data.dim % size))
    base, queries = np.pad(data.base, pad), np.pad(data.queries, pad)

    def tune(index: Any) -> None:
        if rotate:
            faiss.downcast_VectorTransform(index.chain.at(0)).max_train_points = rows
            index = faiss.downcast_index(index.index)
        index.pq.cp.max_points_per_centroid = rows // 256

    name, factory = ("OPQ,PQ", f"OPQ{size},PQ{size}") if rotate else ("PQ", f"PQ{size}")
    index, seconds = faiss_index(data, factory, base, tune)
    index.add(base)
    cell = data.measure(all_scores(data, index, queries))
    return {f"FAISS {name}": cell | {"bits": 8 * size, "bytes": size, "train": seconds}}


def faiss_additive(data: Set, size: int, rows: int, name: str, limit: int) -> dict[str, Cell]:
    """RQ or LSQ with a byte for each of `size` codebooks, in a process with a limit of its processor time."""
    import multiprocessing
    import resource

    def work(to: Any) -> None:
        import numpy as np

        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        chosen = np.random.default_rng(SEED).permutation(data.n)[:rows]
        index, seconds = faiss_index(data, f"{name}{size}x8", data.base[chosen])
        coding, codes = timed(lambda: index.sa_encode(data.base))
        decoded = index.sa_decode(codes)
        squares = (decoded * decoded).sum(axis=1)
        cell = data.measure(lambda first, last: squares - 2 * (data.queries[first:last] @ decoded.T))
        to.send(cell | {"bits": 8 * size, "bytes": index.sa_code_size(), "train": seconds, "encode": coding})

    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=work, args=(there,))
    process.start()
    there.close()
    try:
        cell = here.recv()
    except EOFError:
        process.join()
        if process.exitcode not in (-signal.SIGKILL, -signal.SIGXCPU):
            sys.exit(f"{name} at {size} bytes failed: exit code {process.exitcode}")
        say(f"{name}: not done after {limit} seconds of the processor")
        return {f"FAISS {name}": {"late": limit}}
    process.join()
    return {f"FAISS {name}": cell}


# Bytes of factors, options of the training (the default sketch has 2 rows a bit), and
# for each ranking the name of its cell.
MODELS: list[tuple[int, list[str], dict[str, str]]] = [
    (0, ["--method", "lsh"], {"hamming": "LSH"}),
    (0, ["--method", "osh", "--rotation", "random"], {"hamming": "OSH, random rotation"}),
    (0, ["--rotation", "random"], {"hamming": "FROSH, random rotation"}),
    (0, ["--rotation", "itq"], {"hamming": "FROSH + ITQ, Hamming", "asymmetric": "FROSH + ITQ, asymmetric"}),
    (FROSH_FACTORS, ["--rotation", "itq"], {"estimated": PLAIN}),
    (0, ["--rotation", "refined"], {"hamming": "FROSH refined, Hamming", "asymmetric": "FROSH refined, asymmetric"}),
    (FROSH_FACTORS, ["--rotation", "refined"], {"estimated": OURS})]
METHODS = ["LSH", "PCA sign", "PCA, random rotation", "OSH, random rotation", "FROSH, random rotation",
           "FROSH + ITQ, Hamming", "FROSH + ITQ, asymmetric", PLAIN,
           "FROSH refined, Hamming", "FROSH refined, asymmetric", OURS,
           BYTES_OURS, MERGED, RESEEDED, *ONE_BIT, "FAISS PQ", "FAISS OPQ,PQ", *ADDITIVE]


def cross_check(data: Set) -> None:
    """The program and this script must agree about one model's codes."""
    import numpy as np

    cell = frosh(data, 4, 0, ["--rotation", "random"], {"hamming": "ours"})["ours"]
    codes = []
    for file in (data.base_file, data.query_file):
        out = file.with_name("codes.npy")
        subprocess.run([str(FROSH), "encode", str(file.with_name("model.frosh")), str(file), "-o", str(out),
                        "--quiet"], check=True)
        codes.append(np.load(out))
    here = data.hamming(*codes)
    if abs(here["map"] - cell["map"]) > 1e-6 or abs(here["recall"] - cell["recall"]) > 1e-3:
        sys.exit(f"the program and this script measure differently: {cell} and {here}")


def verdict(cells: list[Cell]) -> list[str]:
    """Where the estimated distance is above every one-bit method of FAISS, and where not."""
    lines = []
    for method in (OURS, PLAIN):
        ours = {(c["set"], c["size"]): c for c in cells if c["method"] == method}
        others = [c for c in cells if c["method"] in ONE_BIT and (c["set"], c["size"]) in ours]
        for measure, name in (("map", "MAP"), ("recall", f"recall@{K}")):
            pairs = [(ours[c["set"], c["size"]], c) for c in others]
            lost = [(own, c) for own, c in pairs if own[measure] <= c[measure]]
            lines.append(f"{method}: above FAISS's one-bit methods in {name} in {len(pairs) - len(lost)} of "
                         f"{len(pairs)} comparisons")
            lines += [f"  not: {c['set']}, {c['size']} bytes: {own[measure]:.3f} against {c[measure]:.3f} of "
                      f"{c['method']} ({c['bytes']} bytes)" for own, c in lost]
    return lines


def quantizer_verdict(cells: list[Cell]) -> list[str]:
    """In how many cells the quantiser is above all of FAISS's product and one-bit codes, and above its additive ones."""
    lines = []
    ours = {(c["set"], c["size"]): c for c in cells if c["method"] == BYTES_OURS}
    rivals = [name for name in METHODS if name.startswith("FAISS")]
    for title, names in (("methods, where they finished", rivals),
                         ("PQ, OPQ, ITQ and RaBitQ", [n for n in rivals if n not in ADDITIVE]),
                         ("RQ and LSQ, where they finished", ADDITIVE)):
        lost, count = [], 0
        for (name, size), own in ours.items():
            others = [c for c in cells if (c["set"], c["size"]) == (name, size) and c["method"] in names
                      and "late" not in c]
            for measure in ("map", "recall") if others else ():
                best = max(others, key=lambda c: c[measure])
                count += 1
                if own[measure] <= best[measure]:
                    error = f", standard error {best[measure + '_error']:.3f}" if measure + "_error" in best else ""
                    lost.append(f"  not: {name}, {size} bytes, {measure}: {own[measure]:.3f} against "
                                f"{best[measure]:.3f} of {best['method']}{error}")
        lines += [f"{BYTES_OURS}: above FAISS's {title} in {count - len(lost)} of {count} cells", *lost]
    return lines


def difference_lines(cells: list[Cell]) -> list[str]:
    """How far the merged model, and that of another seed, are from the first."""
    lines = []
    ours = {(c["set"], c["size"]): c for c in cells if c["method"] == BYTES_OURS}
    for method in (MERGED, RESEEDED):
        pairs = [(c, ours[c["set"], c["size"]]) for c in cells
                 if c["method"] == method and (c["set"], c["size"]) in ours]
        for measure, name in (("map", "MAP"), ("recall", f"recall@{K}")) if pairs else ():
            off = [c[measure] - own[measure] for c, own in pairs]
            lines.append(f"{method}: {name} differs by {min(off):+.3f} to {max(off):+.3f}, mean {sum(off) / len(off):+.4f}; "
                         f"within .005 in {sum(abs(x) <= .005 for x in off)} of {len(off)} cells")
    return lines


def table(cells: list[Cell], markdown: bool) -> str:
    """One block for each set: a line a method, columns by bytes."""
    out = []
    for name in dict.fromkeys(c["set"] for c in cells):
        own = [c for c in cells if c["set"] == name]
        sizes = sorted({c["size"] for c in own})
        heads = [f"{size} bytes: MAP" if i == 0 else i for size in sizes
                 for i in (0, f"R@{K}", f"x{OVERSAMPLE}", "train s")]
        rows = []
        for method in METHODS:
            row = [method]
            for size in sizes:
                cell = next((c for c in own if (c["method"], c["size"]) == (method, size)), None)
                if cell is None or "late" in cell:
                    row += ["-"] * 4
                    continue
                note = "" if cell["bytes"] == size else f" ({cell['bytes']} B)"
                seconds = cell["train"]
                row += [f"{cell['map']:.3f}{note}", f"{cell['recall']:.3f}", f"{cell['reranked']:.3f}",
                        f"{seconds:.2f}" if seconds < 10 else f"{seconds:.0f}"]
            if any(x != "-" for x in row[1:]):
                rows.append(row)
        title = f"{name}: {own[0]['rows']:,} rows of {own[0]['dim']}"
        if markdown:
            out += [f"### {title}", "", "| | " + " | ".join(heads) + " |", "|---|" + "--:|" * len(heads)]
            out += ["| " + " | ".join(row) + " |" for row in rows] + [""]
        else:
            out += [title, f"{'':<34}" + "".join(f"{head:>15}" if "MAP" in head else f"{head:>8}" for head in heads)]
            out += [f"{row[0]:<34}" + "".join(f"{x:>15}" if i % 4 == 0 else f"{x:>8}"
                                               for i, x in enumerate(row[1:])) for row in rows] + [""]
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data", metavar="FOLDER")
    parser.add_argument("--set", dest="sets", action="append", metavar="NAME",
                        help=f"{', '.join(SETS)}, or another folder in --data that has rows in base.npy")
    parser.add_argument("--bytes", dest="sizes", type=int, action="append", choices=BYTES)
    parser.add_argument("--only", metavar="TEXT", help="only methods with this in their names")
    parser.add_argument("--without", metavar="TEXT", help="no methods with this in their names")
    parser.add_argument("--pq-rows", type=int, default=65_536, metavar="N",
                        help="rows that FAISS's quantisers learn from: 65,536 as FAISS does; fewer is quicker")
    parser.add_argument("--limit", type=int, default=3600, metavar="SECONDS",
                        help="seconds of the processor for a cell of FAISS's additive quantisers")
    parser.add_argument("--json", type=Path, metavar="FILE",
                        help="keep cells here; what is there is not done again, unless another build made it")
    parser.add_argument("--show", action="store_true", help="measure nothing: print what --json holds")
    parser.add_argument("--markdown", action="store_true", help="print the tables as markdown")
    args = parser.parse_args()
    run_inside_venv(PINS)

    for name in [] if args.show else args.sets or SETS:
        if not (args.data / name).is_dir():
            sys.exit(f"{args.data / name}: is not there; give the folder that has the data sets with --data")
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "frosh-cli"], cwd=ROOT, check=True)
    cells: list[Cell] = json.loads(args.json.read_text()) if args.json and args.json.exists() else []
    program = hashlib.sha256(FROSH.read_bytes()).hexdigest()[:12]
    build = lambda method: " ".join(PINS) if method.startswith(("FAISS", "PCA")) else program  # noqa: E731
    others = [c for c in cells if c["build"] != build(c["method"])]
    if others and not args.show:
        say(f"{len(others)} cells are of another build, and are measured again")
        cells = [c for c in cells if c not in others]
    # What one model gives is measured together; the slow ones come last for each set.
    groups: list[tuple[Callable[[Set, int], dict[str, Cell]], list[str]]] = [
        *((lambda data, size, model=model: frosh(data, size, *model), list(model[2].values()))
          for model in MODELS),
        (frosh_quantizer, [BYTES_OURS]), (frosh_merged, [MERGED]), (frosh_reseeded, [RESEEDED]), (exact_pca, METHODS[1:3]), (faiss_itq, ONE_BIT[:1]), (faiss_rabitq, ONE_BIT[1:]),
        (lambda data, size: faiss_pq(data, size, args.pq_rows, rotate=False), ["FAISS PQ"]),
        (lambda data, size: faiss_pq(data, size, args.pq_rows, rotate=True), ["FAISS OPQ,PQ"]),
        *((lambda data, size, name=name: faiss_additive(data, size, args.pq_rows, name, args.limit), [f"FAISS {name}"])
          for name in ("RQ", "LSQ"))]

    def wanted(name: str) -> bool:
        return (not args.only or args.only in name) and not (args.without and args.without in name)

    for name in [] if args.show else args.sets or SETS:
        with tempfile.TemporaryDirectory(prefix="frosh-quality-") as folder:
            data = None
            for work, names in groups:
                for size in args.sizes or BYTES:
                    known = {c["method"] for c in cells if c["set"] == name
                             and (c["size"] == size or ("late" in c and c["size"] < size))}
                    missing = [n for n in names if wanted(n) and n not in known]
                    if not missing or (work is faiss_rabitq and size <= RABITQ_FACTORS):
                        continue
                    if data is None:
                        say(f"{name}: exact neighbours")
                        data = Set(name, args.data, Path(folder))
                        cross_check(data)
                    say(f"{name}, {size} bytes: {', '.join(missing)}")
                    for method, cell in work(data, size).items():
                        if method in missing:
                            cells.append({"set": name, "rows": data.n, "dim": data.dim, "size": size,
                                          "method": method, "build": build(method)} | cell)
                    if args.json:
                        args.json.write_text(json.dumps(cells, indent=0))
    print(f"{QUERIES:,} queries, one thread; {', '.join(PINS)}; PQ and OPQ learn from {args.pq_rows:,} rows\n")
    cells.sort(key=lambda c: SETS.index(c["set"]) if c["set"] in SETS else len(SETS))
    chosen = [c for c in cells if c["set"] in (args.sets or SETS) and c["size"] in (args.sizes or BYTES)
              and wanted(c["method"])]
    print(table(chosen, args.markdown))
    print("\n".join(verdict(cells) + quantizer_verdict(cells) + difference_lines(cells)))


if __name__ == "__main__":
    main()
