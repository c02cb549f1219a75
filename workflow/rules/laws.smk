# The loss law of each architecture, what follows from it, and a verdict on each claim.

from smelt.results.stages import OF_STUDY


rule laws_fit:
    input:
        rules.budget_tables.output,
        rules.evaluate.input,
    output:
        expand(f"{RESULTS}/laws/{{table}}.parquet", table=OF_STUDY["laws"]),
    log:
        f"{RESULTS}/logs/laws_fit.log",
    benchmark:
        f"{RESULTS}/benchmarks/laws_fit.jsonl"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=3000,
        runtime=60,
    params:
        study=STUDY_FILE,
        results=subpath(output[0], ancestor=2),
        out=subpath(output[0], parent=True),
        settings=settings_hash(STUDY, "laws"),
        code=code_fingerprint("laws"),
    message:
        "Fitting and bootstrapping the loss law"
    shell:
        "python -m smelt.laws --study {params.study:q} --results {params.results:q} "
        "--out {params.out:q} > {log:q} 2>&1"


rule claims:
    input:
        rules.budget_tables.output,
        rules.evaluate.input,
        rules.mechanism.input,
        rules.laws_fit.output,
    output:
        f"{RESULTS}/claims/claims.parquet",
    log:
        f"{RESULTS}/logs/claims.log",
    benchmark:
        f"{RESULTS}/benchmarks/claims.jsonl"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        study=STUDY_FILE,
        results=subpath(output[0], ancestor=2),
        out=subpath(output[0], parent=True),
        code=code_fingerprint("laws", "report/claims*"),
    message:
        "Testing the paper's claims"
    shell:
        "python -m smelt.report claims --study {params.study:q} --results {params.results:q} "
        "--out {params.out:q} > {log:q} 2>&1"


rule laws:
    input:
        rules.laws_fit.output,
        rules.claims.output,
    message:
        "All laws and claims"
