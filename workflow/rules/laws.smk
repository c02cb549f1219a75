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
    conda:
        "../../environment.yml"
    threads: 8
    resources:
        mem_mb=3000,
        runtime=60,
    params:
        study=STUDY_FILE,
        results=subpath(output.fits, ancestor=2),
        out=subpath(output.fits, parent=True),
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
        "Laws and claims complete"
