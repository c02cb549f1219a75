# Text: fetched by hash, extracted, split, tokenised, packed into shards.


rule corpus_fetch:
    input:
        sources=f"config/sources/{STUDY.corpus.sources}.yaml",
        lock="data/corpus.lock",
    output:
        f"{CACHE}/{STUDY.corpus.sources}.json",
    log:
        f"{RESULTS}/logs/corpus_fetch.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=60,
    params:
        sources=STUDY.corpus.sources,
        cache=subpath(output[0], parent=True),
    message:
        "Fetching the source archives by hash (the only step that uses the network)"
    shell:
        "python -m smelt.corpus fetch --sources {params.sources:q} --cache {params.cache:q} > {log:q} 2>&1"


rule corpus_build:
    input:
        sources=f"config/sources/{STUDY.corpus.sources}.yaml",
        archives=rules.corpus_fetch.output[0],
    output:
        manifest=f"{RESULTS}/corpus/manifest.json",
        tokenizer=f"{RESULTS}/corpus/tokenizer.json",
        documents=f"{RESULTS}/corpus/documents.parquet",
        sources=f"{RESULTS}/corpus/corpus_sources.parquet",
    log:
        f"{RESULTS}/logs/corpus_build.log",
    benchmark:
        f"{RESULTS}/benchmarks/corpus_build.jsonl"
    conda:
        "../../environment.yml"
    threads: 8
    resources:
        mem_mb=4000,
        runtime=720,
    params:
        study=STUDY_FILE,
        out=subpath(output.manifest, parent=True),
        cache=subpath(input.archives, parent=True),
        settings=settings_hash(STUDY, "corpus"),
        code=code_fingerprint("corpus"),
    message:
        "Extracting, cleaning, splitting and tokenising the text"
    shell:
        "python -m smelt.corpus build --study {params.study:q} --cache {params.cache:q} "
        "--out {params.out:q} > {log:q} 2>&1"


rule corpus:
    input:
        rules.corpus_build.output,
    message:
        "The whole corpus"
