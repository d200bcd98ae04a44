"""Draw docs/trained.png: a network trained offline, and one that is fitted to the scene itself.

python benchmarks/trained_panel.py [--minutes 3] [--cells FOLDER]

Small networks, for a CPU: 16 channels, 3 scales.  The other networks of the table `offline` are
drawn by `hydiff bench figures --scene indian_pines_right --mask published-3 --method hydiff-ei`.
"""

import argparse
import json
import tempfile
from pathlib import Path

from hydiff.bench import panels, scenes
from hydiff.bench.cells import Cell

HOME = Path(__file__).parents[1] / "docs" / "trained.png"
SMALL = {"channels": 16, "scales": 3, "steps": 300}
RATE = 3e-3  # learning rate of a network of this size, see docs/notes/offline-training.md
CROPS, BAND = 300, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=3.0, help="of training")
    parser.add_argument("--cells", type=Path, help="folder that keeps the fills")
    args = parser.parse_args()
    training = {"offline": {"crops": CROPS, "minutes": args.minutes, "lr": RATE}}
    wanted = [
        Cell(
            "hydiff-ei", scenes.OFFLINE_TEST, panels.TRAINED_MASK, settings=json.dumps(SMALL | way)
        )
        for way in ({}, training)
    ]
    with tempfile.TemporaryDirectory() as temporary:
        place = args.cells or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        case = panels.trained_case(panels.FillCache(place, device="cpu"), wanted)
    panels.band_panels(case, BAND).savefig(HOME, dpi=150)


if __name__ == "__main__":
    main()
