# What the second visit does: one capture of a held-out sample for every run of the grid.

from smelt.results.stages import OF_GRID_RUN


rule mechanism_run:
    input:
        run=rules.train_run.output.manifest,
        corpus=rules.corpus_build.output.manifest,
    output:
        expand(
            f"{RESULTS}/mechanism/{{{{run}}}}/{{table}}.parquet",
            table=OF_GRID_RUN["mechanism"],
        ),
    log:
        f"{RESULTS}/logs/mechanism/{{run}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/mechanism_run/{{run}}.jsonl"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: attempt
        * reading(wildcards.run, 240).memory_mb,
        runtime=lambda wildcards: reading(wildcards.run, 240).minutes,
        gpu=lambda wildcards: reading(wildcards.run, 240).devices,
    params:
        study=STUDY_FILE,
        corpus=subpath(input.corpus, parent=True),
        run=subpath(input.run, parent=True),
        out=subpath(output[0], parent=True),
        settings=settings_hash(STUDY, "mechanism"),
        code=code_fingerprint("mechanism"),
    message:
        "Looking inside {wildcards.run}"
    shell:
        "python -m smelt.warm smelt.mechanism --study {params.study:q} --run {params.run:q} "
        "--corpus {params.corpus:q} --out {params.out:q} > {log:q} 2>&1"


rule mechanism:
    input:
        [
            of_runs(f"mechanism/{{run}}/{table}.parquet", GRID_RUNS)
            for table in OF_GRID_RUN["mechanism"]
        ],
    message:
        "All captures of the mechanism"
