"""What an in-context task is, and the DCLM Core suite: 22 tasks and MMLU.

Types, shots, delimiters, categories and random baselines are those of mlfoundations/dclm at commit
361714bd (`mmlu_and_lowvar.yaml`, `eval_meta_data.csv` is baseline version v2, `eval_meta_data_v1.csv` v1).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

CHOICE = "multiple_choice"
SCHEMA = "schema"
COMPLETION = "language_modeling"
KINDS = (CHOICE, SCHEMA, COMPLETION)

WORLD = "world knowledge"
COMMON = "commonsense reasoning"
LANGUAGE = "language understanding"
SYMBOLIC = "symbolic problem solving"
READING = "reading comprehension"
CATEGORIES = (READING, WORLD, COMMON, LANGUAGE, SYMBOLIC)


@dataclass(frozen=True)
class Task:
    """One in-context task.

    Attributes:
        kind: one of `KINDS`.
        shots: demonstrations of the standard setting.
        delimiter: text between a question and its answer.
        chance: accuracy of the random baseline that centres the score, a fraction.
        file: name of the JSONL file.
        by_category: items are split by their field `category`, each part is evaluated on its own and
            the parts count equally.
        core: the task enters the suite's Core score.
    """

    name: str
    kind: str
    shots: int
    delimiter: str
    category: str
    chance: float
    file: str
    by_category: bool = False
    core: bool = True

    @property
    def completion(self) -> bool:
        """Whether the task enters the Completion loss: the free-form tasks do."""
        return self.kind == COMPLETION

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for `tasks.json`."""
        return asdict(self)


_ANSWER = "\nAnswer: "
# name, kind, shots, delimiter, category, baseline v2 in percent, file (default: <name>.jsonl)
_DCLM = (
    ("hellaswag_zeroshot", CHOICE, 0, " ", LANGUAGE, 25.0, "hellaswag.jsonl"),
    ("jeopardy", COMPLETION, 10, _ANSWER, WORLD, 0.0, "jeopardy_all.jsonl"),
    ("bigbench_qa_wikidata", COMPLETION, 10, " ", WORLD, 0.0, None),
    ("arc_easy", CHOICE, 10, _ANSWER, WORLD, 25.0, None),
    ("arc_challenge", CHOICE, 10, _ANSWER, WORLD, 25.0, None),
    ("copa", CHOICE, 0, " ", COMMON, 50.0, None),
    ("commonsense_qa", CHOICE, 10, " ", COMMON, 40.3, None),
    ("piqa", CHOICE, 10, _ANSWER, COMMON, 50.0, None),
    ("openbook_qa", CHOICE, 0, " ", COMMON, 25.0, None),
    ("lambada_openai", COMPLETION, 0, " ", LANGUAGE, 0.0, None),
    ("hellaswag", CHOICE, 10, " ", LANGUAGE, 25.0, None),
    ("winograd", SCHEMA, 0, " ", LANGUAGE, 50.0, "winograd_wsc.jsonl"),
    ("winogrande", SCHEMA, 0, " ", LANGUAGE, 50.0, None),
    ("bigbench_dyck_languages", COMPLETION, 10, " ", SYMBOLIC, 0.0, None),
    ("agi_eval_lsat_ar", CHOICE, 3, " ", SYMBOLIC, 25.0, None),
    ("bigbench_cs_algorithms", COMPLETION, 10, " ", SYMBOLIC, 0.0, None),
    ("bigbench_operators", COMPLETION, 10, " ", SYMBOLIC, 0.0, None),
    ("bigbench_repeat_copy_logic", COMPLETION, 10, " ", SYMBOLIC, 0.0, None),
    ("squad", COMPLETION, 10, " ", READING, 0.0, None),
    ("coqa", COMPLETION, 0, " ", READING, 0.0, None),
    ("boolq", CHOICE, 10, _ANSWER, READING, 62.0, None),
    ("bigbench_language_identification", CHOICE, 10, " ", LANGUAGE, 25.0, None),
    ("mmlu_fewshot", CHOICE, 5, _ANSWER, WORLD, 25.0, "mmlu.jsonl"),
)
_BY_CATEGORY = ("jeopardy", "mmlu_fewshot")
MMLU = "mmlu_fewshot"

# The baselines that version v1 gave another value, in percent.
_V1 = {"commonsense_qa": 20.0, "agi_eval_lsat_ar": 20.0, "bigbench_language_identification": 9.1}
BASELINE_VERSIONS = ("v2", "v1")

# Figure 11c goes on to 32 demonstrations for these.
LONG_SHOTS = (
    "bigbench_qa_wikidata",
    "arc_easy",
    "bigbench_cs_algorithms",
    "bigbench_dyck_languages",
    "bigbench_operators",
)


def dclm_tasks(version: str = "v2") -> dict[str, Task]:
    """Return the 22 Core tasks and MMLU by name, with the random baselines of `version`."""
    tasks = {}
    for name, kind, shots, delimiter, category, percent, file in _DCLM:
        percent = _V1.get(name, percent) if version == "v1" else percent
        tasks[name] = Task(
            name=name,
            kind=kind,
            shots=shots,
            delimiter=delimiter,
            category=category,
            chance=percent / 100,
            file=file or f"{name}.jsonl",
            by_category=name in _BY_CATEGORY,
            core=name != MMLU,
        )
    return tasks
