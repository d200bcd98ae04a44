"""Time of the learned fill on this machine's GPU; writes benchmarks/results/speed.csv.

python benchmarks/speed.py [--out FOLDER] [--device cuda]
"""

import argparse
from pathlib import Path

from hydiff.bench import speed

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--plot-only", action="store_true", help="draw docs/performance.png anew")
    args = parser.parse_args()
    rows = speed.measure(args.device)
    if not args.plot_only:
        for row in speed.write(
            args.out / "speed.csv", rows, args.device, "python benchmarks/speed.py"
        ):
            print(*row.values(), flush=True)
    speed.plot(args.out / "speed.csv", Path(__file__).parents[1] / "docs" / "performance.png")
