"""Iterations of the conjugate gradients of `smooth` with two preconditioners.

    python benchmarks/preconditioner.py            writes benchmarks/results/preconditioner.csv

The first principal component of Indian Pines, to a relative residual of 1e-4.
"""

import numpy as np

from classical import DATA, ROOT, scene
from hydiff.bench import records
from hydiff.maths import subspace
from hydiff.methods import classical as fills
from hydiff.methods import membranes

RESULTS = ROOT / "benchmarks" / "results" / "preconditioner.csv"


def iterations(z, known, s, precondition):
    """How often A is applied before the residual is small enough."""
    applied = 0
    missing, power = ~known, fills.laplacian_eigenvalues(*known.shape) ** s

    def A(v):
        nonlocal applied
        applied += 1
        return embedded(z, missing, v, power)

    start, given = z.copy(), membranes.membrane(known)
    start[:, missing] = given.inside(z[:, given.rim.pixels])
    fills.conjugate_gradients(A, -fills.filtered(start, power)[:, missing], precondition, 1e-4)
    return applied


def embedded(z, missing, v, weight):
    f = np.zeros_like(z)
    f[:, missing] = v
    return fills.filtered(f, weight)[:, missing]


def compared(z, known, s):
    """Iterations with the Laplacian's own inverse power, and with the one that knows the gaps."""
    missing, eigenvalues = ~known, fills.laplacian_eigenvalues(*known.shape)
    inverse = np.maximum(eigenvalues, 1e-12) ** -s
    inverse[0, 0] = inverse.flat[1:].max()  # the constant component: any positive weight will do
    rest = eigenvalues ** (2 - s)
    solve = membranes.membrane(known).solve
    plain = iterations(z, known, s, lambda r: embedded(z, missing, r, inverse))
    ours = iterations(z, known, s, lambda r: solve(embedded(z, missing, solve(r), rest)))
    return {"plain": plain, "ours": ours}


def main():
    truth, rows = scene("indian_pines_144"), []
    for mask in ("stripes_144_s3", "blobs_144_s3"):
        known = np.load(DATA / "masks.npz")[mask]
        space = subspace.fit(truth[:, known], np.ones((200, known.sum()), bool), 1)
        z = space.project(truth) * known
        for s in (1.25, 1.5, 1.75, 2.0):
            rows.append({"mask": mask, "s": s} | compared(z, known, s))
            print(rows[-1])
    records.write(RESULTS, rows)


if __name__ == "__main__":
    main()
