# Held-out loss by source, category and length, and in-context tasks, at every endpoint.


rule tasks:
    input:
        corpus=rules.corpus_build.output.manifest,
    output:
        f"{RESULTS}/tasks/tasks.json",
    log:
        f"{RESULTS}/logs/tasks.log",
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        settings=settings_hash(STUDY, "evaluation"),
        code=code_fingerprint("evaluate"),
    message:
        "Writing the in-context tasks and checking them for leaks"
    shell:
        "{PYTHON:q} -m smelt.evaluate tasks --study {STUDY_FILE:q} --corpus {RESULTS:q}/corpus "
        "--out {RESULTS:q}/tasks > {log:q} 2>&1"


rule evaluate_run:
    input:
        run=rules.train_run.output,
        corpus=rules.corpus_build.output.manifest,
        tasks=rules.tasks.output,
    output:
        endpoints=f"{RESULTS}/evaluate/{{run}}/endpoints.parquet",
        validation=f"{RESULTS}/evaluate/{{run}}/validation.parquet",
        scores=f"{RESULTS}/evaluate/{{run}}/task_scores.parquet",
    log:
        f"{RESULTS}/logs/evaluate/{{run}}.log",
    threads: 1
    resources:
        mem_mb=3000,
        runtime=720,
        gpu=int(GPUS > 0),
    params:
        settings=settings_hash(STUDY, "evaluation"),
        code=code_fingerprint("evaluate"),
    message:
        "Evaluating {wildcards.run}"
    shell:
        "{PYTHON:q} -m smelt.evaluate run --study {STUDY_FILE:q} --run {RESULTS:q}/runs/{wildcards.run} "
        "--corpus {RESULTS:q}/corpus --tasks {RESULTS:q}/tasks "
        "--out {RESULTS:q}/evaluate/{wildcards.run} > {log:q} 2>&1"


rule evaluate:
    input:
        rules.tasks.output,
        of_runs("evaluate/{run}/endpoints.parquet", RUNS),
        of_runs("evaluate/{run}/validation.parquet", RUNS),
        of_runs("evaluate/{run}/task_scores.parquet", RUNS),
