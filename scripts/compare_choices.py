#!/usr/bin/env python3
"""Compare what models choose by themselves with every alternative, and their forecasts with what is measured.

For each data set and number of bits: `frosh train` chooses rotation, ranking and factors on its sample. Then models with
each rotation are measured on all rows by `frosh eval`, with queries that no model has seen. The regret of an
alternative is how far it falls below the best one in MAP or in recall@10, whichever is more.

    python3 scripts/compare_choices.py BASE.npy:QUERIES.npy ...      # one pair of files for each data set
    python3 scripts/compare_choices.py --bits 64 128 -- BASE.npy:QUERIES.npy

Needs Python 3.11 or later and nothing else. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROTATIONS = ["refined", "refined-random"]


def frosh(*arguments: object) -> dict:
    command = [str(ROOT / "target/release/frosh"), *map(str, arguments), "--json", "--quiet"]
    return json.loads(subprocess.check_output(command, text=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="BASE:QUERIES")
    parser.add_argument("--bits", nargs="+", type=int, default=[64, 128, 256])
    options = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "frosh-cli"], cwd=ROOT, check=True)
    print("| set | bits | chosen | MAP | recall@10 | regret | least regret (by) | forecast | candidates | recall after re-ranking | forecast |")
    print("|---|--:|---|--:|--:|--:|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.frosh")
        for pair in options.sets:
            base, queries = pair.split(":")
            name = Path(base).stem
            dim = frosh("inspect", base)["dim"]
            for bits in [bits for bits in options.bits if bits <= dim]:
                table(name, base, queries, bits, model)


def table(name: str, base: str, queries: str, bits: int, model: Path) -> None:
    def measure(oversample: int) -> dict[str, dict]:
        told = frosh("eval", model, "--base", base, "--queries", queries, "-k", 10, "--oversample", oversample)
        return {line["ranking"]: line for line in told["rankings"]}

    figures: dict[str, tuple[float, float]] = {}
    for rotation in ROTATIONS:
        model.unlink(missing_ok=True)
        frosh("train", base, "--bits", bits, "--rotation", rotation, "-o", model)
        for ranking, line in measure(4).items():
            figures[f"{rotation}, {ranking}"] = (line["map"], line["recall"]["10"])
    model.unlink(missing_ok=True)
    choice = frosh("train", base, "--bits", bits, "-o", model)["choice"]
    forecast = choice["forecast"]
    chosen = measure(forecast["oversample"])[choice["ranking"]]
    mine = (chosen["map"], chosen["recall"]["10"])
    best = [max(figure[i] for figure in [*figures.values(), mine]) for i in (0, 1)]

    def regret(figure: tuple[float, float]) -> float:
        return max(best[0] - figure[0], best[1] - figure[1])

    least = min(figures, key=lambda key: regret(figures[key]))
    kind = f"{choice['rotation']}, {choice['ranking']}, {choice['factor_bytes']} B"
    print(f"| {name} | {bits} | {kind} | {mine[0]:.3f} | {mine[1]:.3f} | {regret(mine):.3f} "
          f"| {regret(figures[least]):.3f} ({least}) | {forecast['recall']:.3f} | {10 * forecast['oversample']} "
          f"| {chosen['recall_reranked']['10']:.3f} | {forecast['reranked']:.3f} |", flush=True)


if __name__ == "__main__":
    main()
