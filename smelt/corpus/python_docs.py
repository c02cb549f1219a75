"""Documentation inside Python modules, read with `ast`; nothing is imported."""

from __future__ import annotations

import ast
import textwrap
import warnings
from collections.abc import Iterator

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _parse(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return None


def _dedent(text: str) -> str:
    """Return a docstring without its common indentation (the first line has none of its own)."""
    first, _, rest = text.expandtabs().partition("\n")
    return f"{first.strip()}\n{textwrap.dedent(rest)}".strip()


def _docstring(node: Definition | ast.Module) -> str:
    return _string(node.body[0]) if node.body else ""


def _string(node: ast.stmt) -> str:
    value = getattr(node, "value", None) if isinstance(node, ast.Expr) else None
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return _dedent(value.value)
    return ""


def _signature(node: Definition) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return f"{node.name}({', '.join(name for name in names if name not in ('self', 'cls'))})"


def docstrings(name: str, text: str) -> Iterator[str]:
    """Yield one document for the module's docstring and one for each documented function and class.

    A class's document holds the docstrings of its methods too.
    """
    module = _parse(text)
    if module is None:
        return
    yield _docstring(module)
    for node in module.body:
        if isinstance(node, Definition):
            parts = _definition(node)
            if parts:
                yield "\n\n".join(parts)


def _definition(node: Definition) -> list[str]:
    own = _docstring(node)
    parts = [f"{_signature(node)}\n\n{own}"] if own else []
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            if isinstance(child, Definition):
                parts += _definition(child)
    return parts


def fields(name: str, text: str) -> Iterator[str]:
    """Yield one document for each top-level class: what it is, then each attribute with its description.

    Interface libraries describe an attribute in a string after its annotation.
    """
    module = _parse(text)
    if module is None:
        return
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            parts = _class_fields(node)
            if parts:
                yield "\n\n".join([_words(node.name), *parts])


def _class_fields(node: ast.ClassDef) -> list[str]:
    own = _docstring(node)
    parts = [own] if own else []
    for previous, child in zip(node.body, node.body[1:], strict=False):
        described = _string(child)
        if isinstance(previous, ast.AnnAssign) and isinstance(previous.target, ast.Name) and described:
            parts.append(f"{_words(previous.target.id)}: {described}")
        elif isinstance(child, ast.ClassDef):
            parts += _class_fields(child)
        elif isinstance(child, ast.FunctionDef) and _docstring(child):
            parts.append(f"{_words(child.name)}: {_docstring(child)}")
    return parts


def _words(identifier: str) -> str:
    """Return `PaymentIntent` or `payment_intent` as words."""
    spaced = "".join(f" {c}" if c.isupper() and i else c for i, c in enumerate(identifier))
    return " ".join(spaced.replace("_", " ").split())


def chapters(name: str, text: str) -> Iterator[str]:
    """Yield the chapters of a book kept as one string and a table of verse starts.

    The module holds `Bible(version, text, {id: start}, ...)`; the digits of an id are one or two for
    the book, three for the chapter and three for the verse.
    """
    module = _parse(text)
    for node in ast.walk(module) if module else ():
        if isinstance(node, ast.Call) and len(node.args) > 3:
            whole, starts = ast.literal_eval(node.args[1]), ast.literal_eval(node.args[2])
            first: dict[int, int] = {}
            for verse, start in sorted(starts.items()):
                first.setdefault(verse // 1000, start)
            ends = [*list(first.values())[1:], len(whole)]
            for start, end in zip(first.values(), ends, strict=True):
                yield whole[start:end].replace("`", "'").strip()
