"""Fit the loss surface: Huber loss on log loss, many starts, every problem of a batch at once (section 5)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import qmc

from smelt.errors import SmeltError
from smelt.laws.optimise import minimise
from smelt.laws.surface import PARAMETERS, Surface

DELTA = 1e-3
# Bounds of the exponents; a fit that ends on one says so.
EXPONENT_BOUNDS = {"a": (0.01, 2.0), "b": (-1.0, 2.0), "c": (0.01, 2.0)}
# A term below this share of the smallest loss has vanished.
VANISHED = 1e-3
# Where starts are drawn: the exponents of published laws, with room on both sides.
_START_BOX = {"a": (0.1, 1.0), "b": (0.0, 0.7), "c": (0.2, 1.1)}


@dataclass(frozen=True)
class Design:
    """Endpoints of one architecture, one entry each.

    `flops` training FLOPs per token, `sparsity` the measured fraction, `tokens` D, `loss` nats per token;
    `cell`, `scale` and `level` (S in percent) are labels, by which cells are resampled and levels counted.
    """

    flops: np.ndarray
    sparsity: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    cell: np.ndarray
    scale: np.ndarray
    level: np.ndarray

    def __post_init__(self) -> None:
        for name in ("flops", "tokens", "loss"):
            values = np.asarray(getattr(self, name), dtype=float)
            if not (np.isfinite(values) & (values > 0)).all():
                bad = values[~(np.isfinite(values) & (values > 0))][0]
                raise SmeltError(f"{name} contains {bad}; every endpoint needs a positive, finite value")
        if ((self.sparsity < 0) | (self.sparsity >= 1)).any():
            raise SmeltError(f"sparsity contains {self.sparsity.max()}; it must lie in [0, 1)")

    def __len__(self) -> int:
        return len(self.loss)

    def subset(self, keep: np.ndarray) -> Design:
        """Return the endpoints where `keep` is true."""
        return Design(*(getattr(self, name)[keep] for name in self.__dataclass_fields__))

    def with_loss(self, loss: np.ndarray) -> Design:
        """Return the same endpoints with other losses."""
        return replace(self, loss=loss)

    def refusal(self) -> str:
        """Return why no surface can be fitted to these endpoints, or an empty string."""
        if len(self) < len(PARAMETERS):
            return f"{len(self)} endpoints for {len(PARAMETERS)} parameters"
        for name, values, need in (
            ("sparsity level", self.level, 2),
            ("scale", self.scale, 2),
            ("token horizon", self.tokens, 2),
        ):
            if len(np.unique(values)) < need:
                return f"{len(np.unique(values))} {name} only; the surface needs at least {need}"
        for name, values in (("FLOPs per token", self.flops), ("sparsity", self.sparsity)):
            if np.ptp(values) == 0:
                return f"all endpoints have the same {name}, {values[0]:g}"
        return ""

    def doubt(self) -> str:
        """Return why the fitted coefficients are not identified although a fit exists, or an empty string."""
        scales, horizons = len(np.unique(self.scale)), len(np.unique(self.tokens))
        if horizons < 3:
            return f"{horizons} token horizons: E, K and c are not identified"
        if scales < 3:
            return f"{scales} scales: E, A and a are hardly identified"
        return ""


class SurfaceModel:
    """Residuals of log loss with centred regressors.

    The optimiser sees x = (E, alpha, kappa, a, b, c) with alpha = log A + b s0 - a f0 and
    kappa = log K - c d0 at the means s0, f0, d0 of log(1-S), log F and log D; without the centring log A and
    a are almost the same direction. A and K must span orders of magnitude, E must not: near zero its
    logarithm makes a long curved valley of what is nearly a straight line in E.
    """

    def __init__(self, design: Design, log_loss_rn: np.ndarray, row_p: np.ndarray) -> None:
        """Problem p fits the losses in row `row_p[p]` of `log_loss_rn`."""
        f, s, d = np.log(design.flops), np.log1p(-design.sparsity), np.log(design.tokens)
        self.centre = {"f": f.mean(), "s": s.mean(), "d": d.mean()}
        self.f_n, self.s_n, self.d_n = f - f.mean(), s - s.mean(), d - d.mean()
        self.log_loss_rn, self.row_p = log_loss_rn, row_p

    def __call__(self, x_pd: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return residuals [p, n] and derivatives [p, n, 6]."""
        floor, alpha, kappa, a, b, c = (column[:, None] for column in x_pd.T)
        size = np.exp(alpha + b * self.s_n - a * self.f_n)
        data = np.exp(kappa - c * self.d_n)
        total = floor + size + data
        residual = np.log(total) - self.log_loss_rn[self.row_p[which]]
        size, data = size / total, data / total
        parts = (1.0 / total, size, data, -self.f_n * size, self.s_n * size, -self.d_n * data)
        return residual, np.stack(parts, axis=-1)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the box of x.

        At the centre of the design each term lies between a share of the smallest loss that is too small to
        tell from nothing and ten times the largest one.
        """
        bottom, top = self.log_loss_rn.min() + np.log(VANISHED), self.log_loss_rn.max() + np.log(10.0)
        low = [np.exp(bottom), bottom, bottom] + [EXPONENT_BOUNDS[name][0] for name in "abc"]
        high = [np.exp(top), top, top] + [EXPONENT_BOUNDS[name][1] for name in "abc"]
        return np.array(low), np.array(high)

    def surface(self, x_pd: np.ndarray) -> Surface:
        """Return the coefficients of section 5 for rows of x."""
        floor, alpha, kappa, a, b, c = np.moveaxis(x_pd, -1, 0)
        log_size = alpha - b * self.centre["s"] + a * self.centre["f"]
        log_data = kappa + c * self.centre["d"]
        return Surface(floor, np.exp(log_size), np.exp(log_data), a, b, c)

    def parameters(self, law: Surface) -> np.ndarray:
        """Return x [..., 6] of a surface."""
        alpha = np.log(law.A) + law.b * self.centre["s"] - law.a * self.centre["f"]
        kappa = np.log(law.K) - law.c * self.centre["d"]
        return np.stack(np.broadcast_arrays(law.E, alpha, kappa, law.a, law.b, law.c), axis=-1)

    def starts(self, count: int, seed: int) -> np.ndarray:
        """Return starts [count, 6]: exponents spread evenly over a box, the rest by linear least squares."""
        box = np.array([_START_BOX[name] for name in "abc"])
        unit = qmc.Sobol(3, seed=seed).random_base2(int(np.ceil(np.log2(max(count, 2)))))[:count]
        exponents = box[:, 0] + unit * (box[:, 1] - box[:, 0])
        loss_n = np.exp(self.log_loss_rn[0])
        rows = []
        for a, b, c in exponents:
            design = [np.ones_like(loss_n), np.exp(b * self.s_n - a * self.f_n), np.exp(-c * self.d_n)]
            solution = np.linalg.lstsq(np.stack(design, axis=1), loss_n, rcond=None)[0]
            # A start must be positive in every term; a tenth of the smallest loss is a neutral stand-in.
            solution = np.where(solution > 0, solution, 0.1 * loss_n.min())
            rows.append([solution[0], *np.log(solution[1:]), a, b, c])
        return np.array(rows)


@dataclass(frozen=True)
class Fit:
    """A fitted surface with what a reader must know before believing it.

    `rmse` is in nats on the loss itself; `condition` is that of the Gauss-Newton matrix with unit diagonal;
    `agreeing_starts` counts the starts that reached the same objective. `converged` says that the surface
    can be read inside its window; `note` tells what is wrong with it or with single coefficients: where E
    has vanished the surface may be good although E, a and c cannot be told apart.
    """

    law: Surface
    rmse: float
    n: int
    objective: float
    condition: float
    converged: bool
    agreeing_starts: int
    note: str


# Above this the coefficients are set by rounding and by single residuals, not by the data.
MAX_CONDITION = 1e8
NO_FLOOR = "E has vanished: the irreducible loss is out of reach, and single coefficients mean little"


def fit_surface(design: Design, starts: int = 64, seed: int = 0) -> Fit:
    """Fit one surface from `starts` starts.

    Raises:
        SmeltError: the endpoints do not determine a surface (`Design.refusal`).
    """
    if reason := design.refusal():
        raise SmeltError(f"no surface can be fitted: {reason}")
    weights = np.ones((1, len(design)))
    model = SurfaceModel(design, np.log(design.loss)[None], np.zeros(starts, dtype=int))
    start = model.starts(starts, seed)
    lower, upper = model.bounds()
    solution = minimise(model, start, np.repeat(weights, starts, axis=0), lower, upper, DELTA)
    best = _best(solution.objective_p, solution.x_pd)
    x = solution.x_pd[best]
    law = model.surface(x)
    predicted = law.loss(design.flops, design.sparsity, design.tokens)
    agreeing = int((solution.objective_p <= solution.objective_p[best] * (1 + 1e-6) + 1e-15).sum())
    condition = _condition(model, x, (x > lower) & (x < upper))
    doubts = [design.doubt()] + _bound_notes(x, lower, upper)
    if condition > MAX_CONDITION:
        doubts.append(f"ill-conditioned (condition number {condition:.1e})")
    if not solution.converged_p[best]:
        doubts.append("the optimiser did not converge")
    doubts = [doubt for doubt in doubts if doubt]
    notes = doubts + ([NO_FLOOR] if x[0] <= lower[0] else [])
    return Fit(
        law=Surface(**{name: float(value) for name, value in law.columns().items()}),
        rmse=float(np.sqrt(np.mean((predicted - design.loss) ** 2))),
        n=len(design),
        objective=float(solution.objective_p[best]),
        condition=condition,
        converged=not doubts,
        agreeing_starts=agreeing,
        note="; ".join(notes),
    )


def _best(objective_p: np.ndarray, x_pd: np.ndarray) -> int:
    """Return the lowest objective, among equals the smallest parameters: start order is immaterial."""
    ties = np.flatnonzero(objective_p <= objective_p.min() * (1 + 1e-9))
    return int(ties[np.lexsort(x_pd[ties].T[::-1])[0]])


def _condition(model: SurfaceModel, x_d: np.ndarray, free_d: np.ndarray) -> float:
    _, jacobian = model(x_d[None], np.zeros(1, dtype=int))
    jacobian = jacobian[..., free_d]
    matrix = jacobian[0] / np.maximum(np.linalg.norm(jacobian[0], axis=0), 1e-300)
    values = np.linalg.svd(matrix, compute_uv=False)
    return float(min((values[0] / max(values[-1], 1e-150)) ** 2, 1e300))


def _bound_notes(x_d: np.ndarray, lower_d: np.ndarray, upper_d: np.ndarray) -> list[str]:
    """Return a note for each parameter on a bound but E on its lower one."""
    notes = []
    for name, value, low, high in zip(PARAMETERS, x_d, lower_d, upper_d, strict=True):
        if (value <= low and name != "E") or value >= high:
            side = "lower" if value <= low else "upper"
            text = f"{name} sits on its {side} bound"
            notes.append(text + (f" {value:g}" if name in EXPONENT_BOUNDS else ""))
    return notes


def fit_many(
    design: Design,
    log_loss_rn: np.ndarray,
    weights_pn: np.ndarray,
    row_p: np.ndarray,
    starts_pkd: np.ndarray,
    fixed: dict[str, np.ndarray] | None = None,
) -> tuple[Surface, np.ndarray, np.ndarray]:
    """Fit P problems, each from K starts; return surfaces, objectives [P] and which sit on a bound [P].

    A vanished E is no bound in this sense: the surface is as good without it.

    Args:
        design: the common endpoints.
        log_loss_rn: rows of log losses; problem p uses row `row_p[p]`.
        weights_pn: how often each endpoint counts.
        starts_pkd: starts in the optimiser's parameters.
        fixed: exponents to hold, by name, one entry a problem; the others are fitted.
    """
    problems, count, width = starts_pkd.shape
    model = SurfaceModel(design, log_loss_rn, np.repeat(row_p, count))
    lower, upper = model.bounds()
    full = starts_pkd.reshape(-1, width).copy()
    for name, values in (fixed or {}).items():
        full[:, PARAMETERS.index(name)] = np.repeat(values, count)
    free = np.array([name not in (fixed or {}) for name in PARAMETERS])
    weights = np.repeat(weights_pn, count, axis=0)
    held = _Held(model, full, free)
    solution = minimise(held, full[:, free], weights, lower[free], upper[free], DELTA)
    full[:, free] = solution.x_pd
    objective = solution.objective_p.reshape(problems, count)
    best = objective.argmin(axis=1)
    x_pd = full.reshape(problems, count, width)[np.arange(problems), best]
    at_lower = (x_pd <= lower) & (np.array(PARAMETERS) != "E")
    on_bound = (at_lower | (x_pd >= upper))[:, free].any(axis=1)
    return model.surface(x_pd), objective[np.arange(problems), best], on_bound


class _Held:
    """The surface model as a function of some of its parameters, the others held at each problem's values."""

    def __init__(self, model: SurfaceModel, full_pd: np.ndarray, free_d: np.ndarray) -> None:
        self.model, self.full_pd, self.free_d = model, full_pd, free_d

    def __call__(self, x_pd: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.free_d.all():
            return self.model(x_pd, which)
        full = self.full_pd[which]
        full[:, self.free_d] = x_pd
        residual, jacobian = self.model(full, which)
        return residual, jacobian[..., self.free_d]
