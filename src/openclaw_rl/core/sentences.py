"""The sentence under each field of a settings class, read from its source."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from itertools import pairwise


@functools.cache  # each of a dozen classes is read once
def sentences(kind: type) -> dict[str, str]:
    """The sentence under each field of a settings class."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, after in pairwise(tree.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(after.value.value).split())
    return found
