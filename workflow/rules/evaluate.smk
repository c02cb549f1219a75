# Held-out loss by source, category and length, and in-context tasks, at every endpoint.


rule tasks:
    input:
        corpus=rules.corpus_build.output.manifest,
    output:
        f"{RESULTS}/tasks/tasks.json",
    log:
        f"{RESULTS}/logs/tasks.log",
    benchmark:
        f"{RESULTS}/benchmarks/tasks.jsonl"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        study=STUDY_FILE,
        corpus=subpath(input.corpus, parent=True),
        out=subpath(output[0], parent=True),
        settings=settings_hash(STUDY, "evaluation"),
        code=code_fingerprint("evaluate"),
    message:
        "Writing the in-context tasks and checking them for leaks"
    shell:
        "python -m smelt.evaluate tasks --study {params.study:q} --corpus {params.corpus:q} "
        "--out {params.out:q} > {log:q} 2>&1"


rule evaluate_run:
    input:
        run=rules.train_run.output.manifest,
        corpus=rules.corpus_build.output.manifest,
        tasks=rules.tasks.output[0],
    output:
        endpoints=f"{RESULTS}/evaluate/{{run}}/endpoints.parquet",
        validation=f"{RESULTS}/evaluate/{{run}}/validation.parquet",
        scores=f"{RESULTS}/evaluate/{{run}}/task_scores.parquet",
        answers=f"{RESULTS}/evaluate/{{run}}/items.parquet",
    log:
        f"{RESULTS}/logs/evaluate/{{run}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/evaluate_run/{{run}}.jsonl"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: attempt
        * reading(wildcards.run, 720).memory_mb,
        runtime=lambda wildcards: reading(wildcards.run, 720).minutes,
        gpu=lambda wildcards: reading(wildcards.run, 720).devices,
    params:
        study=STUDY_FILE,
        corpus=subpath(input.corpus, parent=True),
        run=subpath(input.run, parent=True),
        tasks=subpath(input.tasks, parent=True),
        out=subpath(output.endpoints, parent=True),
        settings=settings_hash(STUDY, "evaluation"),
        code=code_fingerprint("evaluate"),
    message:
        "Evaluating {wildcards.run}"
    shell:
        "python -m smelt.warm smelt.evaluate run --study {params.study:q} --run {params.run:q} "
        "--corpus {params.corpus:q} --tasks {params.tasks:q} "
        "--out {params.out:q} > {log:q} 2>&1"


rule evaluate:
    input:
        rules.tasks.output,
        of_runs("evaluate/{run}/endpoints.parquet", RUNS),
        of_runs("evaluate/{run}/validation.parquet", RUNS),
        of_runs("evaluate/{run}/task_scores.parquet", RUNS),
        of_runs("evaluate/{run}/items.parquet", RUNS),
    message:
        "All evaluations"
