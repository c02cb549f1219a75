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
    benchmark:
        f"{RESULTS}/benchmarks/budget_tables.jsonl"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        study=STUDY_FILE,
        out=subpath(output.runs, parent=True),
        settings=settings_hash(STUDY, "all"),
        seeds=SEEDS,
        code=code_fingerprint("study", "budget"),
    message:
        "Matching FLOPs, parameters and KV cache of every run"
    shell:
        "python -m smelt.budget tables --study {params.study:q} --seeds {params.seeds} "
        "--out {params.out:q} > {log:q} 2>&1"


rule plan:
    log:
        f"{RESULTS}/logs/plan.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        study=STUDY_FILE,
        seeds=SEEDS,
        results=RESULTS,
    message:
        "Planning sizes, FLOPs, memory, disk and expected gaps"
    shell:
        "python -m smelt.budget plan --study {params.study:q} --seeds {params.seeds} "
        "--results {params.results:q} 2> {log:q}"


rule budget:
    input:
        rules.budget_tables.output,
    message:
        "All budgets"
