"""The local tasks: what each is, and who makes its items."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from smelt.evaluate.items import Item
from smelt.evaluate.local import commonsense, knowledge, language, reading, symbolic
from smelt.evaluate.local.texts import Texts
from smelt.evaluate.registry import (
    CHOICE,
    COMMON,
    COMPLETION,
    LANGUAGE,
    READING,
    SCHEMA,
    SYMBOLIC,
    WORLD,
    Task,
)


@dataclass(frozen=True)
class LocalTask:
    """A task and its generator, which returns an item or None when a draw is of no use.

    `options` is the number of options of an item; completions have one and their chance level is the share
    of the most frequent answer, which is only known when the items are.
    """

    name: str
    kind: str
    shots: int
    delimiter: str
    category: str
    options: int
    make: Callable[[random.Random, Texts], Item | None]
    long: bool = False

    def task(self, chance: float) -> Task:
        """Return the task with its chance level."""
        return Task(
            name=self.name,
            kind=self.kind,
            shots=self.shots,
            delimiter=self.delimiter,
            category=self.category,
            chance=chance,
            file=f"{self.name}.jsonl",
        )


def _own(make: Callable[[random.Random], Item]) -> Callable[[random.Random, Texts], Item]:
    return lambda rng, texts: make(rng)


LOCAL_TASKS = (
    LocalTask("local_key_value", COMPLETION, 1, " ", READING, 1, _own(reading.key_value)),
    LocalTask("local_where_is", COMPLETION, 0, " ", READING, 1, _own(reading.where_is)),
    LocalTask("local_is_it_true", CHOICE, 2, "\nAnswer: ", READING, 2, _own(reading.is_it_true)),
    LocalTask("local_series", COMPLETION, 2, " ", WORLD, 1, _own(knowledge.series)),
    LocalTask("local_country_facts", COMPLETION, 2, " ", WORLD, 1, knowledge.country_fact, long=True),
    LocalTask("local_country_choice", CHOICE, 2, "\nAnswer: ", WORLD, 4, knowledge.country_choice, long=True),
    LocalTask("local_cause_effect", CHOICE, 0, " ", COMMON, 2, _own(commonsense.cause_effect)),
    LocalTask("local_tool_use", CHOICE, 2, " ", COMMON, 4, _own(commonsense.tool_use)),
    LocalTask("local_last_word", COMPLETION, 0, " ", LANGUAGE, 1, language.last_word),
    LocalTask("local_continuation", CHOICE, 0, " ", LANGUAGE, 4, language.continuation),
    LocalTask("local_kind_of_text", CHOICE, 2, " ", LANGUAGE, 5, language.kind_of_text),
    LocalTask("local_agreement", SCHEMA, 0, " ", LANGUAGE, 2, _own(language.agreement)),
    LocalTask("local_reference", SCHEMA, 0, " ", LANGUAGE, 2, _own(language.reference)),
    LocalTask("local_dyck_languages", COMPLETION, 2, " ", SYMBOLIC, 1, _own(symbolic.dyck), long=True),
    LocalTask("local_operators", COMPLETION, 2, " ", SYMBOLIC, 1, _own(symbolic.operators), long=True),
    LocalTask("local_cs_algorithms", COMPLETION, 2, " ", SYMBOLIC, 1, _own(symbolic.algorithms), long=True),
    LocalTask("local_repeat_copy", COMPLETION, 2, " ", SYMBOLIC, 1, _own(symbolic.repeat_copy)),
    LocalTask("local_ordering", CHOICE, 1, " ", SYMBOLIC, 4, _own(symbolic.ordering)),
)
