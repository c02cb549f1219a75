# Sizes of every run under the three budgets, and what the study will cost and can show.


rule budget_tables:
    output:
        runs=f"{RESULTS}/budget/runs.parquet",
        pairs=f"{RESULTS}/budget/pairs.parquet",
        ablations=f"{RESULTS}/budget/ablation_points.parquet",
        power=f"{RESULTS}/budget/power.parquet",
        published=f"{RESULTS}/budget/published_configs.parquet",
    log:
        f"{RESULTS}/logs/budget_tables.log",
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        study=settings_hash(STUDY, "all"),
        seeds=SEEDS,
        code=code_fingerprint("study", "budget"),
    message:
        "Matching FLOPs, parameters and KV cache of every run"
    shell:
        "{PYTHON:q} -m smelt.budget tables --study {STUDY_FILE:q} --seeds {SEEDS} "
        "--out {RESULTS:q}/budget > {log:q} 2>&1"


rule plan:
    log:
        f"{RESULTS}/logs/plan.log",
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    message:
        "Planning sizes, FLOPs, memory, disk and expected gaps"
    shell:
        "{PYTHON:q} -m smelt.budget plan --study {STUDY_FILE:q} 2> {log:q}"


rule budget:
    input:
        rules.budget_tables.output,
