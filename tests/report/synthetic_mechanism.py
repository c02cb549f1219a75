"""Invented rows of the mechanism tables; see `synthetic`."""

from __future__ import annotations

import numpy as np

STAGES = ("X", "Q", "K", "V", "PV", "O")
_DIAGNOSTICS = {
    "top1_overlap": (0.55, 0.25),
    "top8_overlap": (0.6, 0.3),
    "mass_overlap": (0.65, 0.35),
    "expert_overlap": (0.5, 0.1),
    "update_cosine": (0.56, 0.16),
    "update_ratio": (1.6, 1.0),
    "attention_ratio": (1.4, 1.0),
    "moe_ratio": (1.9, 1.0),
    "norm_ratio": (1.2, 1.0),
}


class MechanismRows:
    """Mixed into `Synthetic`."""

    def _interval(self, value: float, width: float = 0.02) -> dict:
        return {"low": value - width, "high": value + width}

    def _mechanism(self, run: dict) -> None:
        folder = f"mechanism/{run['run']}"
        layers, span = run["layers"], range(run["loop_start"], run["loop_start"] + run["loop_length"])
        visits = [
            (layer, visit)
            for layer in range(layers)
            for visit in range(run["loop_count"] if layer in span else 1)
        ]
        sink = []
        for layer, visit in visits:
            for head in range(run["heads"]):
                mass = float(np.clip(0.6 * (layer + 1) / layers - 0.3 * visit + 0.05 * head, 0, 1))
                row = {"run": run["run"], "layer": layer, "visit": visit, "head": head, "mass": mass}
                sink.append(row | self._interval(mass))
        self._write(folder, "sink", sink)
        self._write(folder, "residual_flow", self._flow(run, visits))
        order = [(layer, 0) for layer in range(span.start)]
        order += [(layer, visit) for visit in range(run["loop_count"]) for layer in span]
        order += [(layer, 0) for layer in range(span.stop, layers)]
        cosine = [
            {
                "run": run["run"],
                "i": i,
                "j": j,
                "layer_i": a[0],
                "visit_i": a[1],
                "layer_j": b[0],
                "visit_j": b[1],
                "cosine": 1.0 if i == j else 0.55 if a[0] == b[0] else 0.15,
                "low": None,
                "high": None,
            }
            for i, a in enumerate(order)
            for j, b in enumerate(order)
        ]
        self._write(folder, "update_cosine", cosine)
        if not span:
            return
        self._write(folder, "diagnostics", self._diagnostics(run))
        self._write(folder, "interventions", self._interventions(run))
        self._visits(run, folder, span)
        self._dyck(run, folder, span)

    def _diagnostics(self, run: dict) -> list[dict]:
        rows = []
        for name, (value, reference) in _DIAGNOSTICS.items():
            value += float(self.random.normal(0, 0.03))
            row = {"run": run["run"], "diagnostic": name, "value": value, **self._interval(value)}
            rows.append(row | {"reference": reference, "difference": value - reference})
        return rows

    def _interventions(self, run: dict) -> list[dict]:
        rows = []
        for i, name in enumerate(("none", "pattern", "values", "routing", "skip", "single_visit")):
            for category in ("Code", "Web", "all"):
                rise = 0.02 * i
                row = {"run": run["run"], "intervention": name, "category": category, "rise": rise}
                row |= self._interval(rise, 0.005) | {"loss": 2.0 + rise, "tokens": 1000}
                rows.append(row | {"loss_low": 1.97 + rise, "loss_high": 2.03 + rise})
        return rows

    def _flow(self, run: dict, visits: list[tuple[int, int]]) -> list[dict]:
        rows = []
        for layer, visit in visits:
            for component in ("stream", "update", "attention", "moe", "norm", "moe_norm"):
                rms = (1 + layer) * (1 if component == "stream" else 0.3) * (1 + 0.5 * visit)
                relative = rms / (1 + layer)
                rows.append(
                    {
                        "run": run["run"],
                        "layer": layer,
                        "visit": visit,
                        "component": component,
                        "rms": rms,
                        **self._interval(rms),
                        "relative": relative,
                        "relative_low": relative - 0.02,
                        "relative_high": relative + 0.02,
                    }
                )
        return rows

    def _visits(self, run: dict, folder: str, span: range) -> None:
        routing, ratios, cosines, overlaps = [], [], [], []
        top_k = run["top_k"]
        for layer in span:
            base = {"run": run["run"], "layer": layer, "visit": 1}
            mean = top_k * (0.9 - 0.6 * run["sparsity"] / 100)
            weight = np.exp(-0.5 * (np.arange(top_k + 1) - mean) ** 2)
            for shared, fraction in enumerate(weight / weight.sum()):
                routing.append(
                    base
                    | {
                        "shared": shared,
                        "fraction": float(fraction),
                        **self._interval(float(fraction)),
                        "chance": 1 / (top_k + 1),
                        "chance_mean": top_k**2 / run["experts"],
                        "chance_low": 0,
                        "chance_high": 2,
                    }
                )
            for component, ratio in (("update", 1.6), ("attention", 1.4), ("moe", 1.9), ("norm", 1.2)):
                ratios.append(base | {"component": component, "ratio": ratio, **self._interval(ratio)})
            for stage, value in zip(STAGES, (0.88, 0.91, 0.92, 0.7, 0.62, 0.57), strict=True):
                cosines.append(base | {"stage": stage, "cosine": value, **self._interval(value)})
            for head in range(run["heads"]):
                for kind, value in (("top1", 0.6), ("top8", 0.62), ("mass", 0.7)):
                    value += 0.02 * head
                    overlaps.append(
                        base
                        | {
                            "head": head,
                            "kind": kind,
                            "value": value,
                            **self._interval(value),
                            "control": 0.3,
                            "control_low": 0.28,
                            "control_high": 0.32,
                            "chance": 0.05,
                        }
                    )
        self._write(folder, "routing_overlap", routing)
        self._write(folder, "norm_ratios", ratios)
        self._write(folder, "visit_cosine", cosines)
        self._write(folder, "token_overlap", overlaps)

    def _change(self, visit: int, target: int, role: str) -> dict:
        """At a later visit mass moves from BOS to the answers, but for the last target not surely."""
        if not visit:
            return {}
        change = {"bos": -0.58, "demonstration_answer": 0.61}.get(role, 0.0)
        width = 1.0 if target == 2 else 0.1
        return {"change": change, "change_low": change - width, "change_high": change + width}

    def _dyck(self, run: dict, folder: str, span: range) -> None:
        heads = [
            {
                "run": run["run"],
                "layer": layer,
                "head": head,
                "delta": 0.1 * (layer + head),
                **self._interval(0.1 * (layer + head)),
                "perplexity": 4.0,
                "perplexity_low": 3.5,
                "perplexity_high": 4.5,
                "selected": (layer, head) == (span[-1], run["heads"] - 1),
            }
            for layer in span
            for head in range(run["heads"])
        ]
        self._write(folder, "dyck_heads", heads)
        text = ["<bos>", *"([])", "\n", *"[()]", "\n", *"(("]
        roles = {0: "bos", 3: "demonstration_answer", 4: "demonstration_answer", 8: "demonstration_answer"}
        rows, mass = [], []
        for visit in range(run["loop_count"]):
            for role, first, later in (
                ("bos", 0.6, 0.02),
                ("demonstration_answer", 0.24, 0.85),
                ("query", 0.16, 0.13),
            ):
                value = later if visit else first
                row = {"run": run["run"], "visit": visit, "role": role, "mass": value}
                mass.append(row | self._interval(value))
            for target in range(3):
                for position, token in enumerate(text):
                    role = roles.get(position, "demonstration" if position < 11 else "query")
                    rows.append(
                        {
                            "run": run["run"],
                            "visit": visit,
                            "target": target,
                            "position": position,
                            "mass": {"bos": 0.6, "demonstration_answer": 0.12}.get(role, 0.01) / (1 + visit),
                            "token": token,
                            "role": role,
                            "layer": span[-1],
                            "head": run["heads"] - 1,
                            **self._change(visit, target, role),
                        }
                    )
        self._write(folder, "dyck_map", rows)
        self._write(folder, "dyck_mass", mass)
