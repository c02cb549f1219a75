# The loss law of each architecture, what follows from it, and a verdict on each claim.


rule laws_fit:
    input:
        rules.budget_tables.output,
        rules.evaluate.input,
    output:
        fits=f"{RESULTS}/laws/law_fits.parquet",
        draws=f"{RESULTS}/laws/law_draws.parquet",
        gain=f"{RESULTS}/laws/ce_gain.parquet",
        tpp=f"{RESULTS}/laws/tpp.parquet",
        calibration=f"{RESULTS}/laws/calibration.parquet",
        residuals=f"{RESULTS}/laws/residuals.parquet",
    log:
        f"{RESULTS}/logs/laws_fit.log",
    threads: workflow.cores
    resources:
        mem_mb=3000,
        runtime=60,
    params:
        settings=settings_hash(STUDY, "laws"),
        code=code_fingerprint("laws"),
    message:
        "Fitting and bootstrapping the loss law"
    shell:
        "{PYTHON:q} -m smelt.laws --study {STUDY_FILE:q} --results {RESULTS:q} "
        "--out {RESULTS:q}/laws > {log:q} 2>&1"


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
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        code=code_fingerprint("laws", "report/claims*"),
    message:
        "Testing the paper's claims"
    shell:
        "{PYTHON:q} -m smelt.report claims --study {STUDY_FILE:q} --results {RESULTS:q} "
        "--out {RESULTS:q}/claims > {log:q} 2>&1"


rule laws:
    input:
        rules.laws_fit.output,
        rules.claims.output,
