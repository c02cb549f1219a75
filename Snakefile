# Reproduces the scaling study of compute-matched looped transformers, from text to report.
# `snakemake --cores all` runs the study named in config/config.yaml; README.md has the rest.
from snakemake.utils import min_version

min_version("9.0")


configfile: "config/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/budget.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/mechanism.smk"
include: "workflow/rules/laws.smk"
include: "workflow/rules/report.smk"


localrules:
    all,
    corpus,
    budget,
    train,
    evaluate,
    mechanism,
    laws,
    tables,
    plan,


rule all:
    default_target: True
    input:
        # Every stage's outputs, not the last one's alone: a deleted file in the middle is then made again.
        rules.corpus.input,
        rules.budget.input,
        rules.train.input,
        rules.evaluate.input,
        rules.mechanism.input,
        rules.laws.input,
        rules.tables.input,
        rules.report.input,
    message:
        f"All of study {STUDY.name}; its report is {RESULTS}/report/index.html"
