# One database, one executed notebook per section, one site.
from pathlib import Path

from smelt.report.contents import FIGURES, SECTIONS

NOTEBOOKS = sorted(
    path.stem for path in Path(workflow.basedir, "notebooks").glob("*.ipynb")
)
TEMPLATES = sorted(
    path.name for path in Path(workflow.basedir, "smelt/report/templates").iterdir()
)
CAPTIONS = {
    section.notebook: expand(
        "workflow/report/{name}.rst", name=section.figures + section.tables
    )
    for section in SECTIONS
}


rule database:
    input:
        rules.budget_tables.output,
        rules.corpus_build.output.manifest,
        rules.corpus_build.output.documents,
        rules.corpus_build.output.sources,
        rules.train.input,
        rules.evaluate.input,
        rules.mechanism.input,
        rules.laws.input,
    output:
        f"{RESULTS}/results.duckdb",
    log:
        f"{RESULTS}/logs/database.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        study=STUDY_FILE,
        results=subpath(output[0], parent=True),
        settings=settings_hash(STUDY, "all"),
        seeds=SEEDS,
        code=code_fingerprint("results"),
    message:
        "Building the result database"
    shell:
        "python -m smelt.results build --study {params.study:q} --seeds {params.seeds} --results {params.results:q} "
        "--out {output:q} > {log:q} 2>&1"


rule notebook:
    input:
        notebook="notebooks/{notebook}.ipynb",
        database=rules.database.output[0],
        captions=lambda wildcards: CAPTIONS[wildcards.notebook],
    output:
        notebook=f"{RESULTS}/notebooks/{{notebook}}.ipynb",
        page=f"{RESULTS}/notebooks/{{notebook}}.html",
    log:
        f"{RESULTS}/logs/notebooks/{{notebook}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        study=STUDY_FILE,
        results=subpath(input.database, parent=True),
        code=code_fingerprint("report"),
    message:
        "Rendering notebook {wildcards.notebook}"
    shell:
        "python -m smelt.report notebook --notebook {input.notebook:q} --study {params.study:q} "
        "--db {input.database:q} --out {params.results:q} > {log:q} 2>&1"


rule site:
    input:
        database=rules.database.output,
        pages=expand(f"{RESULTS}/notebooks/{{notebook}}.html", notebook=NOTEBOOKS),
        templates=expand("smelt/report/templates/{name}", name=TEMPLATES),
    output:
        f"{RESULTS}/report/index.html",
        # The same pictures for `snakemake --report report.zip`.
        figures=[
            report(
                f"{RESULTS}/report/files/{name}.png",
                caption=f"../report/{name}.rst",
                category=section.title,
                labels={"figure": FIGURES[name].label, "shows": FIGURES[name].title},
            )
            for section in SECTIONS
            for name in section.figures
        ],
    log:
        f"{RESULTS}/logs/site.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        study=STUDY_FILE,
        out=subpath(output[0], parent=True),
        code=code_fingerprint("report"),
    message:
        "Writing the site"
    shell:
        "python -m smelt.report site --study {params.study:q} --out {params.out:q} > {log:q} 2>&1"


rule tables:
    input:
        rules.database.output,
    message:
        f"All result tables: {RESULTS}/results.duckdb"


rule report:
    input:
        expand(f"{RESULTS}/notebooks/{{notebook}}.ipynb", notebook=NOTEBOOKS),
        rules.site.input.pages,
        rules.site.output[0],
    message:
        f"The whole report: {RESULTS}/report/index.html"
