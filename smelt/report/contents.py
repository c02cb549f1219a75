"""What the report consists of: its sections, figures and tables, with the paper's numbers.

The caption of a figure is the file `workflow/report/<id>.rst`, which Snakemake's own report uses too.
"""

from __future__ import annotations

from dataclasses import dataclass

from smelt.files import ROOT

CAPTIONS = ROOT / "workflow" / "report"


@dataclass(frozen=True)
class Section:
    """One section of the report and the notebook (`notebooks/<notebook>.ipynb`) that makes its figures."""

    notebook: str
    title: str
    figures: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Item:
    """A figure or table: the paper's number, a title, the function that makes it, and its alternative text.

    `maker` is `module:function` below `smelt.report.figures` or `smelt.report.tables`; `ours` marks what the
    paper does not have.
    """

    id: str
    number: str
    title: str
    maker: str
    alt: str = ""
    ours: bool = False

    @property
    def label(self) -> str:
        """The heading, such as `Figure 3`."""
        kind = "Figure" if self.id.startswith("fig") else "Table"
        return f"{kind} {self.number}" + (" (ours)" if self.ours else "")

    @property
    def caption(self) -> str:
        """The explanatory text, one paragraph."""
        return " ".join((CAPTIONS / f"{self.id}.rst").read_text(encoding="utf-8").split())


SECTIONS = (
    Section(
        "01_recipe_and_budgets",
        "Recipe and budgets",
        ("fig01a", "figP1"),
        ("table01", "table02", "table09", "table10", "tableP1"),
    ),
    Section("02_ablations", "Ablations", (), ("table03", "table04", "table05", "tableP5")),
    Section("03_training_curves", "Training curves", ("fig02", "fig20", "fig21", "fig22", "fig23")),
    Section(
        "04_scaling",
        "Scaling",
        ("fig03", "fig04", "fig01b", "figP2"),
        ("table06", "table07", "table08", "tableP2", "tableP4"),
    ),
    Section(
        "05_downstream",
        "Downstream",
        ("fig05", "fig06", "fig07", "fig08", "fig09a", "fig09b", "fig01c"),
        ("table11",),
    ),
    Section(
        "06_domains_length_shots",
        "Domains, length and shots",
        ("fig10a", "fig10b", "fig11a", "fig11b", "fig11c", "fig24"),
    ),
    Section(
        "07_second_pass",
        "Inside the second pass",
        ("fig12", "fig13", "fig14", "fig15", "fig16", "fig17", "figP3"),
        ("tableP3",),
    ),
    Section("08_dyck_and_sinks", "Dyck head and attention sinks", ("fig18", "fig19a", "fig19b", "fig25")),
    Section("09_claims", "Claims", (), ("claims",)),
)

_PAIRED = "Baseline drawn as open blue circles, SMELT as filled red squares."


def _curves(number: int, which: str) -> Item:
    return Item(
        f"fig{number}",
        str(number),
        f"Training curves of the {which} scale",
        f"training:scale_{number - 20}",
        "Loss against tokens, one panel a sparsity, and below each the gap SMELT minus Baseline. " + _PAIRED,
    )


_FIGURES = (
    Item(
        "fig01a",
        "1a",
        "The recipe",
        "recipe:recipe",
        "Two stacks of layers: the Baseline runs each layer once, SMELT runs its middle span again.",
    ),
    Item(
        "fig01b",
        "1b",
        "Compute-optimal frontiers",
        "scaling:frontier",
        "Loss against training FLOPs with the fitted frontier of each architecture. " + _PAIRED,
    ),
    Item(
        "fig01c",
        "1c",
        "Downstream profile of the largest cell",
        "downstream:radar",
        "Radar of the mean score by task category for Baseline and SMELT.",
    ),
    Item(
        "fig02",
        "2",
        "Training curves of two cells",
        "training:two_cells",
        "Loss against tokens of the smallest and the largest scale. " + _PAIRED,
    ),
    Item(
        "fig03",
        "3",
        "Validation loss against compute",
        "scaling:loss_by_sparsity",
        "Validation loss against training FLOPs, one panel a sparsity. " + _PAIRED,
    ),
    Item(
        "fig04",
        "4",
        "Reducible loss against compute",
        "scaling:reducible_loss",
        "Loss minus the fitted irreducible loss against training FLOPs, both axes logarithmic. " + _PAIRED,
    ),
    Item(
        "fig05",
        "5",
        "Completion against compute",
        "downstream:completion",
        "Cross entropy of the gold answers against training FLOPs, one panel a sparsity. " + _PAIRED,
    ),
    Item(
        "fig06",
        "6",
        "Core against compute",
        "downstream:core",
        "Centred accuracy over the task suite against training FLOPs, one panel a sparsity. " + _PAIRED,
    ),
    Item(
        "fig07",
        "7",
        "MMLU against compute",
        "downstream:mmlu",
        "MMLU accuracy against training FLOPs, one panel a sparsity, with the line of chance. " + _PAIRED,
    ),
    Item(
        "fig08",
        "8",
        "From loss to benchmark",
        "downstream:calibration",
        "Completion, Core and MMLU against validation loss with the sigmoid fitted on the Baseline. "
        + _PAIRED,
    ),
    Item(
        "fig09a",
        "9a",
        "Residual at equal loss, by scale",
        "downstream:residuals_by_scale",
        "Heat map of the mean SMELT residual, benchmarks by scales.",
    ),
    Item(
        "fig09b",
        "9b",
        "Residual at equal loss, by task category",
        "downstream:residuals_by_category",
        "Heat map of the mean SMELT residual, task categories by scales.",
    ),
    Item(
        "fig10a",
        "10a",
        "CE gain by domain",
        "domains:gain_by_category",
        "Compute-efficiency gain by source category with intervals, the paper's values as diamonds.",
    ),
    Item(
        "fig10b",
        "10b",
        "CE gain by quartile of Baseline loss",
        "domains:gain_by_quartile",
        "Compute-efficiency gain by quartile of Baseline loss, the paper's values as diamonds.",
    ),
    Item(
        "fig11a",
        "11a",
        "Loss improvement by document length",
        "domains:length_profile",
        "Normalised loss improvement against document length for looping, more experts and more parameters.",
    ),
    Item(
        "fig11b",
        "11b",
        "Accuracy against shots",
        "domains:shots",
        "Mean accuracy of the few-shot tasks against the number of demonstrations. " + _PAIRED,
    ),
    Item(
        "fig11c",
        "11c",
        "Dyck languages against shots",
        "domains:dyck_shots",
        "Accuracy on Dyck languages against the number of demonstrations. " + _PAIRED,
    ),
    Item(
        "fig12",
        "12",
        "Experts shared by two visits",
        "routing:shared_experts",
        "Distribution of the number of experts that both visits choose, one panel a sparsity, with chance.",
    ),
    Item(
        "fig13",
        "13",
        "Residual flow in the span",
        "residual:flow",
        "RMS of the stream, of the update and their ratio by layer, first and second visit, by scale.",
    ),
    Item(
        "fig14",
        "14",
        "Eight diagnostics over the grid",
        "routing:diagnostics",
        "Eight heat maps, scales by sparsities: overlaps, update cosine, norm ratios of visit 2 to visit 1.",
    ),
    Item(
        "fig15",
        "15",
        "Cosine of layer updates",
        "residual:update_cosine",
        "Two heat maps of the pairwise cosine of layer updates in execution order, Baseline and SMELT.",
    ),
    Item(
        "fig16",
        "16",
        "Cross-visit cosine by stage",
        "residual:visit_cosine",
        "Cosine between visits at the input, Q, K, V, PV and O, by layer of the span.",
    ),
    Item(
        "fig17",
        "17",
        "Attended tokens shared by two visits",
        "attention:token_overlap",
        "Overlap of attended tokens between visits, with the control of another head, by layer of the span.",
    ),
    Item(
        "fig18",
        "18",
        "The Dyck head",
        "dyck:dyck_map",
        "Attention of the Dyck head over a four-shot prompt: visit 1, visit 2 and their difference.",
    ),
    Item(
        "fig19a",
        "19a",
        "Attention sink by head",
        "attention:sink_heads",
        "Heat maps of the attention mass on the segment start, heads by layers, visit 1 and visit 2.",
    ),
    Item(
        "fig19b",
        "19b",
        "Attention sink against depth",
        "attention:sink_depth",
        "Attention mass on the segment start against physical depth: Baseline, SMELT visit 1 and visit 2.",
    ),
    _curves(20, "first"),
    _curves(21, "second"),
    _curves(22, "third"),
    _curves(23, "fourth"),
    Item(
        "fig24",
        "24",
        "Accuracy against shots by task",
        "domains:task_shots",
        "One panel a task: accuracy against the number of demonstrations. " + _PAIRED,
    ),
    Item(
        "fig25",
        "25",
        "Attention sink against depth, every scale",
        "attention:sink_scales",
        "One panel a scale: attention mass on the segment start against physical depth.",
    ),
    Item(
        "figP1",
        "P1",
        "What the study can show",
        "recipe:power",
        "Loss gap that the paper's law predicts for each cell against compute, beside the measured one.",
        ours=True,
    ),
    Item(
        "figP2",
        "P2",
        "Loss gap against tokens",
        "scaling:gaps",
        "SMELT's validation loss minus the Baseline's against tokens, one line a scale.",
        ours=True,
    ),
    Item(
        "figP3",
        "P3",
        "What the second visit is needed for",
        "routing:interventions",
        "Rise of the loss when parts of the second visit are replaced by the first visit's or left out.",
        ours=True,
    ),
)

_TABLES = (
    Item("table01", "1", "Looped studies compared", "budgets:studies"),
    Item("table02", "2", "Matching adjustments and worst mismatch", "budgets:matching"),
    Item("table03", "3", "Loop span", "ablations:span"),
    Item("table04", "4", "Depth and width", "ablations:depth"),
    Item("table05", "5", "Loop count", "ablations:loops"),
    Item("table06", "6", "Scaling law", "laws:fits"),
    Item("table07", "7", "Compute-efficiency gain", "laws:gains"),
    Item("table08", "8", "Tokens per parameter", "laws:tokens_per_parameter"),
    Item("table09", "9", "Baseline configurations", "budgets:baselines"),
    Item("table10", "10", "SMELT configurations", "budgets:looped"),
    Item("table11", "11", "Tasks", "tasks:tasks"),
    Item("tableP1", "P1", "The paper's configurations counted anew", "budgets:recounted", ours=True),
    Item("tableP2", "P2", "What the intervals are worth", "laws:coverage", ours=True),
    Item(
        "tableP3",
        "P3",
        "Loss without parts of the second visit",
        "mechanism:interventions",
        ours=True,
    ),
    Item("tableP4", "P4", "How sure the paper's signs are", "laws:signs", ours=True),
    Item("tableP5", "P5", "Stronger Baselines", "ablations:stronger_baselines", ours=True),
    Item("claims", "C", "Claims of the paper, tested", "claims_table:claims", ours=True),
)

FIGURES = {item.id: item for item in _FIGURES}
TABLES = {item.id: item for item in _TABLES}
