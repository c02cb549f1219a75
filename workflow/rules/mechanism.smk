# What the second visit does: one capture of a held-out sample for every run of the grid.

MECHANISM_TABLES = [
    "routing_overlap",
    "residual_flow",
    "update_cosine",
    "visit_cosine",
    "token_overlap",
    "sink",
    "dyck_heads",
    "dyck_map",
]


rule mechanism_run:
    input:
        run=rules.train_run.output,
        corpus=rules.corpus_build.output.manifest,
    output:
        expand(
            f"{RESULTS}/mechanism/{{{{run}}}}/{{table}}.parquet",
            table=MECHANISM_TABLES,
        ),
    log:
        f"{RESULTS}/logs/mechanism/{{run}}.log",
    threads: 1
    resources:
        mem_mb=3000,
        runtime=240,
        gpu=int(GPUS > 0),
    params:
        settings=settings_hash(STUDY, "mechanism"),
        code=code_fingerprint("mechanism"),
    message:
        "Looking inside {wildcards.run}"
    shell:
        "{PYTHON:q} -m smelt.mechanism --study {STUDY_FILE:q} --run {RESULTS:q}/runs/{wildcards.run} "
        "--corpus {RESULTS:q}/corpus --out {RESULTS:q}/mechanism/{wildcards.run} > {log:q} 2>&1"


rule mechanism:
    input:
        [of_runs(f"mechanism/{{run}}/{table}.parquet", GRID_RUNS) for table in MECHANISM_TABLES],
