# One process a run: the stable trunk and every decay branch that forks from it.


rule train_run:
    input:
        corpus=rules.corpus_build.output.manifest,
    output:
        # Checkpoints are no outputs: Snakemake would delete them before a retry that is to resume.
        f"{RESULTS}/runs/{{run}}/manifest.json",
    log:
        f"{RESULTS}/logs/train/{{run}}.log",
    retries: 2
    threads: 1
    resources:
        mem_mb=3000,
        runtime=1440,
        gpu=int(GPUS > 0),
    params:
        spec=spec_hash,
    message:
        "Training {wildcards.run}"
    shell:
        "{PYTHON:q} -m smelt.train --study {STUDY_FILE:q} --run {wildcards.run} --spec {params.spec} "
        "--corpus {RESULTS:q}/corpus --out {RESULTS:q}/runs/{wildcards.run} > {log:q} 2>&1"


rule train:
    input:
        of_runs("runs/{run}/manifest.json", RUNS),
