"""Generated tasks about everyday life."""

from __future__ import annotations

import random

from smelt.evaluate.items import Item
from smelt.evaluate.local.words import choose, names, several

# What happens, and what follows from it; the other effects serve as wrong answers.
_EFFECTS = (
    ("{n} dropped the glass", "it broke."),
    ("{n} forgot to water the plant", "it dried out."),
    ("{n} left the ice in the sun", "it melted."),
    ("{n} put the kettle on the stove", "the water boiled."),
    ("{n} ran for an hour", "the legs were tired."),
    ("{n} did not eat all day", "hunger came in the evening."),
    ("{n} walked in the rain", "the coat was wet."),
    ("{n} switched on the lamp", "the room was bright."),
    ("{n} opened the window in winter", "the room was cold."),
    ("{n} cut the rope", "it fell apart in two pieces."),
    ("{n} sharpened the pencil", "it had a new point."),
    ("{n} pushed the swing", "it moved to and fro."),
    ("{n} planted a seed in spring", "a flower grew in summer."),
    ("{n} lost the key", "the door stayed locked."),
    ("{n} missed the train", "the meeting began too early for the traveller."),
    ("{n} told a joke", "everybody laughed."),
    ("{n} rang the bell", "somebody came to the door."),
    ("{n} added salt to the soup", "it tasted saltier."),
    ("{n} pulled the plug", "the machine stopped."),
    ("{n} painted the fence", "it had a fresh colour."),
    ("{n} won the race", "there was a prize."),
    ("{n} stayed up all night", "the next morning was sleepy."),
    ("{n} threw a stone into the pond", "there were rings on the water."),
    ("{n} baked the dough", "there was bread."),
)

# What is done, and with which thing.
_TOOLS = (
    ("cut the bread", "knife"),
    ("dig a hole", "spade"),
    ("drive in the nail", "hammer"),
    ("sew on the button", "needle"),
    ("write the letter", "pen"),
    ("sweep the floor", "broom"),
    ("tell the time", "clock"),
    ("stay dry in the rain", "umbrella"),
    ("cross the river", "boat"),
    ("open the lock", "key"),
    ("weigh the flour", "scale"),
    ("see the stars", "telescope"),
    ("eat the soup", "spoon"),
    ("dry the hands", "towel"),
    ("climb to the roof", "ladder"),
    ("light the candle", "match"),
    ("cut the paper", "scissors"),
    ("catch the fish", "net"),
    ("carry the water", "bucket"),
    ("measure the fever", "thermometer"),
    ("saw the plank", "saw"),
    ("comb the hair", "comb"),
    ("wash the clothes", "soap"),
    ("look at the own face", "mirror"),
    ("find the way north", "compass"),
)


def cause_effect(rng: random.Random) -> Item:
    """Return something that happened and two effects, one of which follows."""
    (cause, effect), (_, other) = several(rng, _EFFECTS, 2)
    gold = rng.randrange(2)
    choices = [effect, other] if gold == 0 else [other, effect]
    return {
        "query": f"{cause.format(n=choose(rng, names(rng, 1)))}, therefore",
        "choices": choices,
        "gold": gold,
    }


def tool_use(rng: random.Random) -> Item:
    """Return an aim and four things, one of which serves it."""
    chosen = several(rng, _TOOLS, 4)
    gold = rng.randrange(4)
    aim = chosen[gold][0]
    return {
        "query": f"{names(rng, 1)[0]} wants to {aim}. For that one needs a",
        "choices": [thing for _, thing in chosen],
        "gold": gold,
    }
