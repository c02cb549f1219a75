"""Pages that tell a reader what to change: their steps, applied to a copy of the project."""

import re
from dataclasses import dataclass

_STEP = re.compile(
    r"^(?P<how>New file|At the end of|In) `(?P<path>[^`\n]+)`"
    r"(?:, (?P<side>after|before) the line `(?P<line>[^\n]+)`)?:\n\n```\w+\n(?P<text>.*?)^```$",
    re.M | re.S,
)


_SECTION = re.compile(r"^(\w+):.*\n(?:[ \t].*\n)*", re.M)


@dataclass(frozen=True)
class Step:
    """One code block: `how` and `side` say where in the file `path` its `text` belongs.

    A block for a YAML file without a place takes the place of the sections that it has.
    """

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
        if self.how == "In" and self.side is None:
            path.write_text(_with_sections(content, self.text))
            return
        if self.how == "At the end of":
            # Two empty lines before a function, none before an entry of a list.
            gap = "\n\n" if self.text.startswith("def ") else ""
            path.write_text(content + gap + self.text)
            return
        line = f"{self.line}\n"
        assert content.count(line) == 1, f"{self.path} has {content.count(line)} lines {self.line!r}"
        both = (line + self.text) if self.side == "after" else (self.text + line)
        path.write_text(content.replace(line, both))


def _with_sections(content, text):
    for section in _SECTION.finditer(text):
        old = [match for match in _SECTION.finditer(content) if match.group(1) == section.group(1)]
        assert len(old) == 1, section.group(1)
        content = content[: old[0].start()] + section.group() + content[old[0].end() :]
    return content


def commands(text):
    """Return the indented commands of a page, in order; a command may have several lines."""
    return re.findall(r"(?<=\n\n) {4}(\S.*(?:\n {4,}\S.*)*)", text)


def steps(text):
    """Return the steps of a page; every code block with a language belongs to one."""
    found = [Step(**match.groupdict()) for match in _STEP.finditer(text)]
    assert len(found) == len(re.findall(r"^```\w+$", text, re.M))
    return found
