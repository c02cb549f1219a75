# One database, one executed notebook per section, one site.
from pathlib import Path

NOTEBOOKS = sorted(
    path.stem for path in Path(workflow.basedir, "notebooks").glob("*.ipynb")
)


rule database:
    input:
        rules.budget_tables.output,
        rules.corpus_build.output.sources,
        rules.train.input,
        rules.evaluate.input,
        rules.mechanism.input,
        rules.laws.input,
    output:
        f"{RESULTS}/results.duckdb",
    log:
        f"{RESULTS}/logs/database.log",
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        study=settings_hash(STUDY, "all"),
        seeds=SEEDS,
        code=code_fingerprint("results"),
    message:
        "Building the result database"
    shell:
        "{PYTHON:q} -m smelt.results build --study {STUDY_FILE:q} --seeds {SEEDS} --results {RESULTS:q} "
        "--out {output:q} > {log:q} 2>&1"


rule notebook:
    input:
        notebook="notebooks/{notebook}.ipynb",
        database=rules.database.output,
    output:
        notebook=f"{RESULTS}/notebooks/{{notebook}}.ipynb",
        page=f"{RESULTS}/notebooks/{{notebook}}.html",
    log:
        f"{RESULTS}/logs/notebooks/{{notebook}}.log",
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        code=code_fingerprint("report"),
    message:
        "Rendering notebook {wildcards.notebook}"
    shell:
        "{PYTHON:q} -m smelt.report notebook --notebook {input.notebook:q} --study {STUDY_FILE:q} "
        "--db {input.database:q} --out {RESULTS:q} > {log:q} 2>&1"


rule site:
    input:
        database=rules.database.output,
        pages=expand(f"{RESULTS}/notebooks/{{notebook}}.html", notebook=NOTEBOOKS),
    output:
        f"{RESULTS}/report/index.html",
    log:
        f"{RESULTS}/logs/site.log",
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        code=code_fingerprint("report"),
    message:
        "Writing the site"
    shell:
        "{PYTHON:q} -m smelt.report site --study {STUDY_FILE:q} --out {RESULTS:q}/report > {log:q} 2>&1"


rule tables:
    input:
        rules.database.output,


rule report:
    input:
        expand(f"{RESULTS}/notebooks/{{notebook}}.ipynb", notebook=NOTEBOOKS),
        rules.site.input.pages,
        rules.site.output,
