# One process a run: the stable trunk and every decay branch that forks from it.


rule train_run:
    input:
        corpus=rules.corpus_build.output.manifest,
    output:
        # Checkpoints are no outputs: Snakemake would delete them before a retry that is to resume.
        manifest=f"{RESULTS}/runs/{{run}}/manifest.json",
        train_log=f"{RESULTS}/runs/{{run}}/train_log.parquet",
        throughput=f"{RESULTS}/runs/{{run}}/throughput.parquet",
    log:
        f"{RESULTS}/logs/train/{{run}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/train_run/{{run}}.jsonl"
    retries: 2
    conda:
        "../../environment.yml"
    threads: of_training("threads")
    resources:
        # A job that was out of memory is tried again with more.
        mem_mb=lambda wildcards, attempt: attempt * training(wildcards.run).memory_mb,
        runtime=of_training("minutes"),
        gpu=of_training("devices"),
        nodes=of_training("nodes"),
        tasks_per_node=of_training("tasks_per_node"),
        tasks=of_training("tasks"),
        tasks_per_gpu=of_training("tasks_per_gpu"),
        mpi=of_training("mpi"),
        launch=lambda wildcards, threads: training(wildcards.run).launch(threads),
    params:
        study=STUDY_FILE,
        corpus=subpath(input.corpus, parent=True),
        out=subpath(output.manifest, parent=True),
        spec=lambda wildcards: SPECS[wildcards.run].spec_hash,
    message:
        "Training {wildcards.run}"
    shell:
        "{resources.launch}python -m smelt.warm smelt.train --study {params.study:q} --run {wildcards.run} --spec {params.spec} "
        "--corpus {params.corpus:q} --out {params.out:q} > {log:q} 2>&1"


rule train:
    input:
        of_runs("runs/{run}/manifest.json", RUNS),
        of_runs("runs/{run}/train_log.parquet", RUNS),
        of_runs("runs/{run}/throughput.parquet", RUNS),
    message:
        "All training"
