"""Laws against a plain scipy loop, and what the paper's grid can tell: `python bench/laws.py`.

Prints the time of the full cell bootstrap (72 endpoints, both architectures) beside L-BFGS-B called in a loop
on a few of the same draws from the same starts, then the recovery study: medians of the fitted exponents,
coverage of the bootstrap's 95% intervals and certainty of the printed signs. Timings are processor seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from smelt.laws.bootstrap import EXTRA_STARTS, bootstrap, cell_weights
from smelt.laws.fit import DELTA, Design, Fit, SurfaceModel, fit_surface
from smelt.laws.frontier import ce_gain
from smelt.laws.optimise import huber
from smelt.laws.published import published_designs, published_truths
from smelt.laws.recovery import paper_coverage, sign_certainty
from smelt.laws.simulate import estimates, simulate_losses

BELOW = 0.90


def scipy_draw(design: Design, weights_n: np.ndarray, starts_kd: np.ndarray) -> float:
    """Return the lowest objective that L-BFGS-B with exact gradients reaches from any start."""
    model = SurfaceModel(design, np.log(design.loss)[None], np.zeros(1, dtype=int))
    which, share_n = np.zeros(1, dtype=int), weights_n / weights_n.sum()

    def objective(x_d: np.ndarray) -> tuple[float, np.ndarray]:
        residual, jacobian = model(x_d[None], which)
        value = share_n @ huber(residual[0], DELTA)
        slope = (share_n * np.clip(residual[0], -DELTA, DELTA)) @ jacobian[0]
        # The objective is near 1e-6; unscaled, the default tolerances would stop at once.
        return 1e6 * value, 1e6 * slope

    bounds = list(zip(*model.bounds(), strict=True))
    options = {"maxiter": 3000, "maxfun": 6000, "ftol": 1e-12, "gtol": 1e-8}
    runs = [
        minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        for start in starts_kd
    ]
    return min(run.fun for run in runs) / 1e6


def seconds(work: Callable[[], object]) -> tuple[float, object]:
    """Return processor seconds and the result of `work`."""
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def speed(draws: int, loop_draws: int) -> None:
    """Time the bootstrap between two halves of the scipy loop."""
    generator = np.random.default_rng(0)
    designs = tuple(
        design.with_loss(design.loss + truth.noise * generator.normal(size=len(design)))
        for design, truth in zip(published_designs(), published_truths(), strict=True)
    )
    fits = tuple(fit_surface(design) for design in designs)
    weights = cell_weights(designs[0], loop_draws, 0)
    before, first = seconds(lambda: _loop(designs, fits, weights[: loop_draws // 2]))
    batch, drawn = seconds(lambda: bootstrap(designs, fits, draws))
    after, second = seconds(lambda: _loop(designs, fits, weights[loop_draws // 2 :]))
    each = (before + after) / loop_draws
    print(f"bootstrap, {draws} draws of both surfaces: {batch:.2f} s, {drawn.degenerate.sum()} degenerate")
    print(f"scipy L-BFGS-B in a loop, {loop_draws} draws: {before + after:.2f} s, so {each * draws:.0f} s")
    print(f"ratio: {each * draws / batch:.0f}")
    _agreement(designs, fits, weights, first + second)


def _starts(design: Design, fit: Fit) -> np.ndarray:
    model = SurfaceModel(design, np.log(design.loss)[None], np.zeros(1, dtype=int))
    return np.concatenate([model.parameters(fit.law)[None], model.starts(EXTRA_STARTS, seed=1)])


def _loop(designs, fits, weights_pn: np.ndarray) -> list[float]:
    return [
        scipy_draw(design, weights_n, _starts(design, fit))
        for weights_n in weights_pn
        for design, fit in zip(designs, fits, strict=True)
    ]


def _agreement(designs, fits, weights_pn: np.ndarray, theirs: list[float]) -> None:
    drawn = bootstrap(designs, fits, len(weights_pn))
    ours = []
    for i, weights_n in enumerate(weights_pn):
        for design, law in zip(designs, (drawn.baseline.draw(i), drawn.smelt.draw(i)), strict=True):
            residual = np.log(law.loss(design.flops, design.sparsity, design.tokens)) - np.log(design.loss)
            ours.append(float(weights_n @ huber(residual, DELTA) / weights_n.sum()))
    worse = np.array(ours) / np.array(theirs) - 1
    print(f"objective over scipy's, relative: {worse.min():+.1e} to {worse.max():+.1e}")


def recovery(repeats: int) -> None:
    """Print medians of the fitted exponents and CE gain over simulated repeats of the paper's grid."""
    designs, truths = published_designs(), published_truths()
    generator = np.random.default_rng(1)
    losses = tuple(simulate_losses(d, t, repeats, generator) for d, t in zip(designs, truths, strict=True))
    fitted = estimates(designs, losses)
    for arch, law, truth in zip(("baseline", "smelt"), fitted, truths, strict=True):
        for name in "abc":
            values, true = getattr(law, name), getattr(truth.law, name)
            off = np.median(values) / true - 1
            middle = np.median(values)
            print(f"{arch} {name}: true {true:.4f} median {middle:.4f} ({off:+.1%}) sd {values.std():.4f}")
    for sparsity in (0.85, 0.95, 0.97):
        true = float(ce_gain(truths[1].law, truths[0].law, 1e21, sparsity))
        values = ce_gain(fitted[1], fitted[0], 1e21, sparsity)
        middle = np.median(values)
        print(f"CE gain at 1e21, S={sparsity:.0%}: true {true:.1%} median {middle:.1%} sd {values.std():.1%}")


def main() -> None:
    """Parse the sizes and print the three parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=2000, help="bootstrap draws to time")
    parser.add_argument("--loop-draws", type=int, default=20, help="draws of the scipy loop")
    parser.add_argument("--repeats", type=int, default=200, help="simulated repeats of the coverage study")
    parser.add_argument("--inner-draws", type=int, default=200, help="bootstrap draws of each repeat")
    arguments = parser.parse_args()
    speed(arguments.draws, arguments.loop_draws)
    print("\nrecovery on the paper's grid, 50 repeats")
    recovery(50)
    print(f"\ncoverage of the 95% cell bootstrap, {arguments.repeats} repeats; * below {BELOW:.0%}")
    for row in paper_coverage(arguments.repeats, arguments.inner_draws):
        mark = "*" if row["coverage"] < BELOW else " "
        print(
            f"{mark} {row['noise']:12} {row['quantity']:20} {row['coverage']:.3f} stretch {row['factor']:.2f}"
        )
    print("\ncertainty of the printed differences in exponents (SMELT minus Baseline)")
    for row in sign_certainty(arguments.repeats * 5):
        print(
            f"{row['noise']:12} {row['exponent']:6} printed {row['printed']:+.4f} spread {row['spread']:.4f} "
            f"right sign {row['right']:.0%} p {row['p_value']:.2f}"
        )


if __name__ == "__main__":
    main()
