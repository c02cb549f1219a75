"""Records of a run: read back as written, and every kind of damage told with its file and its mend."""

import json

import pytest

from smelt.budget import resolve_run
from smelt.errors import SmeltError
from smelt.files import read_json, sha256_file, write_json
from smelt.study import load_study
from smelt.study.records import check_weights, read_run, read_run_of

STUDY, RUN = load_study("smoke"), "xs-s85-smelt"


@pytest.fixture
def folder(tmp_path):
    spec, folder = resolve_run(STUDY, RUN), tmp_path / RUN
    endpoints = []
    for horizon in reversed(STUDY.training.horizons):
        weights = f"endpoints/h{horizon}.safetensors"
        (folder / "endpoints").mkdir(parents=True, exist_ok=True)
        (folder / weights).write_bytes(b"%d" % horizon)
        entry = {"horizon": horizon, "step": horizon, "tokens": horizon, "flops": 1.0, "weights": weights}
        endpoints.append({**entry, "sha256": sha256_file(folder / weights)})
    write_json(folder / "spec.json", spec.to_dict())
    manifest = {"run": RUN, "spec_hash": spec.spec_hash, "corpus": "0" * 64, "endpoints": endpoints}
    write_json(folder / "manifest.json", manifest)
    return folder


def refuses(folder, told):
    mend = f"delete {folder}/manifest.json and run the same snakemake command again$"
    with pytest.raises(SmeltError, match=f"{told}.*; {mend}"):
        read_run_of(STUDY, folder)


def test_records_come_back_as_written_with_endpoints_by_horizon(folder):
    spec, manifest = read_run(folder)
    assert spec == resolve_run(STUDY, RUN)
    assert tuple(entry["horizon"] for entry in manifest["endpoints"]) == STUDY.training.horizons
    assert read_run_of(STUDY, folder) == (spec, manifest)


@pytest.mark.parametrize("text", ["{}", "[]", "null", "3", '"x"', "{", '{"point": {}}'])
def test_a_damaged_specification_is_refused(folder, text):
    (folder / "spec.json").write_text(text)
    refuses(folder, "spec.json")


def _paths(raw, before=()):
    for key, value in raw.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from _paths(value, (*before, key))


def _altered(raw, path, value):
    """Return a copy of `raw` with another value at `path`."""
    copy = json.loads(json.dumps(raw))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return copy


def test_any_one_field_of_the_specification_altered_is_refused(folder):
    raw = read_json(folder / "spec.json")
    # Told by the hash or, where a label is not hashed, by the study; these two are neither read nor hashed.
    for path in set(_paths(raw)) - {("code",), ("training", "logger")}:
        for value in (None, "odd", 17, [], {}):
            altered = _altered(raw, path, value)
            if altered != raw:
                write_json(folder / "spec.json", altered)
                refuses(folder, "spec.json")


def test_a_renamed_field_is_named(folder):
    raw = read_json(folder / "spec.json")
    raw["geometry"]["hiden"] = raw["geometry"].pop("hidden")
    write_json(folder / "spec.json", raw)
    refuses(folder, "spec.json: geometry lacks hidden")


def test_a_label_that_the_hash_does_not_cover_is_compared_with_the_study(folder):
    raw = read_json(folder / "spec.json")
    raw["point"]["group"] = "span"
    write_json(folder / "spec.json", raw)
    refuses(folder, "spec.json: point.group is 'span'; in study smoke it is 'grid'")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([], "manifest.json"),
        (None, "manifest.json"),
        ({}, "'run' is a required property"),
        ({"endpoints": [{}]}, "endpoints.0: 'horizon' is a required property"),
        ({"endpoints": []}, "horizons of the endpoints is"),
        ({"endpoints": "h30"}, "endpoints: 'h30' is not of type 'array'"),
        ({"run": "xs-s95-smelt"}, "run is 'xs-s95-smelt'; spec.json beside it has 'xs-s85-smelt'"),
        ({"spec_hash": "1" * 64}, "spec_hash is '1111"),
        ({"corpus": 7}, "corpus: 7 is not of type 'string'"),
    ],
)
def test_a_damaged_manifest_is_refused(folder, content, told):
    raw = read_json(folder / "manifest.json")
    write_json(folder / "manifest.json", {**raw, **content} if content else content)
    refuses(folder, told)


def test_weights_outside_the_run_are_refused(folder):
    raw = read_json(folder / "manifest.json")
    raw["endpoints"][0]["weights"] = "../other/h30.safetensors"
    write_json(folder / "manifest.json", raw)
    refuses(folder, "endpoints.0.weights")


def test_a_missing_record_is_told(folder):
    (folder / "spec.json").unlink()
    refuses(folder, "spec.json does not exist")
    (folder / "manifest.json").unlink()
    with pytest.raises(SmeltError, match="manifest.json does not exist; run the same snakemake command"):
        read_run(folder)


def test_missing_and_damaged_weights_name_what_to_delete(folder):
    entry = read_run(folder)[1]["endpoints"][0]
    path = check_weights(folder, entry)
    path.write_bytes(b"other")
    with pytest.raises(SmeltError, match=f"is damaged.*; delete {folder}/manifest.json and run the same"):
        check_weights(folder, entry)
    path.unlink()
    with pytest.raises(SmeltError, match=f"does not exist; delete {folder}/manifest.json and run the same"):
        check_weights(folder, entry)
