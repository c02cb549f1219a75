"""Pages that tell a reader what to change: their steps, applied to a copy of the project."""

import re
from dataclasses import dataclass

_STEP = re.compile(
    r"^(?P<how>New file|At the end of|In) `(?P<path>[^`\n]+)`"
    r"(?:, (?P<side>after|before) the line `(?P<line>[^\n]+)`)?:\n\n```\w+\n(?P<text>.*?)^```$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Step:
    """One code block: `how` and `side` say where in the file `path` its `text` belongs."""

    how: str
    path: str
    side: str | None
    line: str | None
    text: str

    def apply(self, folder):
        path = folder / self.path
        if self.how == "New file":
            assert not path.exists(), path
            path.write_text(self.text)
            return
        content = path.read_text()
        if self.how == "At the end of":
            # Two empty lines before a function, none before an entry of a list.
            gap = "\n\n" if self.text.startswith("def ") else ""
            path.write_text(content + gap + self.text)
            return
        line = f"{self.line}\n"
        assert content.count(line) == 1, f"{self.path} has {content.count(line)} lines {self.line!r}"
        both = (line + self.text) if self.side == "after" else (self.text + line)
        path.write_text(content.replace(line, both))


def steps(text):
    """Return the steps of a page; every code block with a language belongs to one."""
    found = [Step(**match.groupdict()) for match in _STEP.finditer(text)]
    assert len(found) == len(re.findall(r"^```\w+$", text, re.M))
    return found
