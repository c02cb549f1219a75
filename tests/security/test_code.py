"""What the code must never do: unpickle, evaluate text, hand text to a shell, put text into SQL.

The rules are checked on the syntax of all code that is shipped, and on samples that break each of them.
"""

import ast
import importlib
import json
import re
import subprocess
from pathlib import Path

import pytest

from smelt.files import ROOT

FOLDERS = ("smelt", "bench", "workflow", "notebooks", "data")
# Modules that name a loader of their own, `_Loader`; a test below looks at each.
SAFE_LOADERS = ("smelt/corpus/yaml_text.py", "smelt/study/study.py")
UNPICKLING = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
# Where SQL has the names of declared tables and columns in it, which are constants of the program.
NAMES_IN_SQL = {
    *("smelt/results/build.py", "smelt/report/data.py", "smelt/report/figures/downstream.py"),
    "bench/drill.py",
}
SQL_CALLS = {"execute", "executemany", "sql", "query", "frame", "rows"}
SQL = re.compile(r"\b(SELECT|INSERT|CREATE|DELETE|UPDATE|DROP)\b")


def sources():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        for path in sorted((ROOT / folder).rglob("*.ipynb")):
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
            yield path.relative_to(ROOT).as_posix(), text


def offences(name, text):
    """Return what a module does that it must not."""
    found = []
    for node in ast.walk(ast.parse(text)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            found += [f"{name}:{line}: {m}" for m in modules if m.split(".")[0] in UNPICKLING]
        if isinstance(node, ast.Call):
            found += [f"{name}:{line}: {what}" for what in call_offences(name, node)]
    return found


def call_offences(name, node):
    called = ast.unparse(node.func)
    options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    if called in ("eval", "exec", "os.system", "os.popen") or called.endswith((".extractall", ".extract")):
        yield called
    if options.get("shell") == "True":
        yield f"{called} with a shell"
    if called == "torch.load" and options.get("weights_only") != "True":
        yield "torch.load without weights_only"
    if options.get("allow_pickle", "False") != "False" or "trust_remote_code" in options:
        yield f"{called} may run what a file says"
    if called in ("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load") and (
        options.get("Loader") != "_Loader" or name not in SAFE_LOADERS
    ):
        yield f"{called} is not safe"
    if called.split(".")[-1] in SQL_CALLS and name not in NAMES_IN_SQL:
        for argument in node.args:
            if SQL.search(ast.unparse(argument)) and not fixed(argument):
                yield "SQL made of text"


def fixed(node):
    """Whether a text is made of literals and constants of its module, or of a choice between such."""
    if isinstance(node, ast.BinOp):
        return fixed(node.left) and fixed(node.right)
    if isinstance(node, ast.IfExp):
        return fixed(node.body) and fixed(node.orelse)
    if isinstance(node, ast.JoinedStr):
        return all(fixed(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return fixed(node.value)
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id.isupper())


def test_no_module_breaks_a_rule():
    modules = dict(sources())
    assert len(modules) > 100 and any(name.endswith(".ipynb") for name in modules)
    assert [offence for name, text in modules.items() for offence in offences(name, text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib.memory",
        "torch.load('a')",
        "torch.load('a', weights_only=False)",
        "numpy.load('a', allow_pickle=True)",
        "load_dataset('a', trust_remote_code=True)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.load(text, Loader=_Loader)",
        "eval(text)",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
        "archive.extractall('a')",
        "connection.execute(f'SELECT * FROM runs WHERE run = {run}')",
        "connection.execute('SELECT * FROM ' + table)",
        "data.rows('runs', 'SELECT {}'.format(name))",
    ],
)
def test_the_rules_find_what_breaks_them(text):
    assert len(offences("smelt/sample.py", text)) == 1


@pytest.mark.parametrize("path", SAFE_LOADERS)
def test_the_loaders_of_yaml_are_safe_ones(path):
    import yaml

    loader = importlib.import_module(path.removesuffix(".py").replace("/", "."))._Loader
    assert issubclass(loader, (yaml.SafeLoader, yaml.CSafeLoader, yaml.BaseLoader, yaml.CBaseLoader))
    assert not [tag for tag in loader.yaml_constructors if tag and "python" in tag]


# Without `:q`: numbers, a hash, the words that start a job's processes, which are the program's own, and a
# run's name, which `wildcard_constraints` bounds.
BARE = {"params.seeds", "params.spec", "resources.launch", "wildcards.run"}


def shell_commands():
    for path in sorted((ROOT / "workflow").rglob("*.smk")):
        text = path.read_text(encoding="utf-8")
        for block in re.findall(r"^    shell:\n((?:        .*\n?)+)", text, re.MULTILINE):
            yield path.name, block


def test_every_value_in_a_shell_command_is_quoted():
    commands = list(shell_commands())
    assert len(commands) >= 11
    for name, command in commands:
        for value in re.findall(r"\{([^}]*)\}", command):
            assert value.endswith(":q") or value in BARE, (name, value)
    constraint = re.search(r'run=r"([^"]+)"', (ROOT / "workflow/common.smk").read_text()).group(1)
    for run in ("xs-s85-smelt", "1.7B-s90-span3", "s-s85-loops3-seed12"):
        assert re.fullmatch(constraint, run)
    for run in ("a;rm -rf x-s85-smelt", "$(id)-s85-smelt", "a b-s85-smelt", "a-s85-smelt\n", "`id`-s85-b"):
        assert not re.fullmatch(constraint, run)


def test_no_secret_is_in_the_repository():
    """Nothing that looks like a key is in a file of the project."""
    known = re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}\b"
        r"|\bhf_[A-Za-z]{30,}\b|://[^/\s:@{}]+:[^/\s@{}]+@"
    )
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("the files of the project are known to Git alone")
    for name in filter(None, listed.stdout.split("\0")):
        path = Path(ROOT, name)
        if path.is_file() and not name.startswith("tests/security/"):
            assert not known.search(path.read_text(encoding="utf-8", errors="replace")), name
