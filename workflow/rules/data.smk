# Text: fetched by hash, extracted, split, tokenised, packed into shards.


rule corpus_fetch:
    input:
        sources=f"config/sources/{STUDY.corpus.sources}.yaml",
        lock="data/corpus.lock",
    output:
        f"{CACHE}/{STUDY.corpus.sources}.json",
    log:
        f"{RESULTS}/logs/corpus_fetch.log",
    threads: 1
    resources:
        mem_mb=1000,
        runtime=60,
    message:
        "Fetching the source archives by hash (the only step that uses the network)"
    shell:
        "{PYTHON:q} -m smelt.corpus fetch --study {STUDY_FILE:q} --cache {CACHE:q} > {log:q} 2>&1"


rule corpus_build:
    input:
        sources=f"config/sources/{STUDY.corpus.sources}.yaml",
        archives=rules.corpus_fetch.output,
    output:
        manifest=f"{RESULTS}/corpus/manifest.json",
        tokenizer=f"{RESULTS}/corpus/tokenizer.json",
        documents=f"{RESULTS}/corpus/documents.parquet",
        sources=f"{RESULTS}/corpus/corpus_sources.parquet",
    log:
        f"{RESULTS}/logs/corpus_build.log",
    threads: workflow.cores
    resources:
        mem_mb=4000,
        runtime=720,
    params:
        settings=settings_hash(STUDY, "corpus"),
        code=code_fingerprint("corpus"),
    message:
        "Extracting, cleaning, splitting and tokenising the text"
    shell:
        "{PYTHON:q} -m smelt.corpus build --study {STUDY_FILE:q} --cache {CACHE:q} "
        "--out {RESULTS:q}/corpus > {log:q} 2>&1"


rule corpus:
    input:
        rules.corpus_build.output,
