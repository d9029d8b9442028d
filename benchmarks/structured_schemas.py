"""Random JSON schemas of the kinds that test suites hold, each by its own seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from openclaw_rl.core.message import Json

WORDS = (
    "name",
    "age",
    "city",
    "tags",
    "size",
    "kind",
    "total",
    "note",
    "path",
    "state",
    "items",
    "größe",
    "a b",
    "x-1",
)
PATTERNS = ("^[a-z]{2,6}$", "^[A-Z][a-z]+$", "^\\d{3}-\\d{2}$", "^(red|green|blue)$", "[0-9]", "^#[0-9a-f]{6}$")
FORMATS = ("date", "time", "date-time", "ipv4", "uuid", "email")
RARE = 0.03  # of what the library may say that it does not take
OPEN = 0.1  # of what has no bound: a model that follows nothing hardly ends it


@dataclass(slots=True)
class Maker:
    """Makes one schema. `$defs` are added as they are referred to."""

    source: random.Random
    definitions: dict[str, Json] = field(default_factory=dict)

    def schema(self) -> dict[str, Json]:
        """An object or an array, mostly of several levels."""
        source = self.source
        whole = self.object(3) if source.random() < 0.75 else self.any(3)
        if self.definitions:
            whole["$defs"] = dict(self.definitions)
        return whole

    def any(self, depth: int) -> dict[str, Json]:
        """Any kind of schema, of at most so many levels."""
        source = self.source
        plain = (self.text, self.integer, self.number, self.choice, self.constant, self.simple)
        if depth <= 0 or source.random() < 0.45:
            return source.choice(plain)()
        kind = source.choice((self.object, self.object, self.array, self.alternatives, self.reference, self.all_of))
        return kind(depth - 1)

    def text(self) -> dict[str, Json]:
        """A string: free, bounded, of a pattern or of a format."""
        source = self.source
        match source.randrange(6):
            case 0:
                return {"type": "string", "pattern": source.choice(PATTERNS)}
            case 1:
                return {"type": "string", "format": source.choice(FORMATS)}
            case 2:
                least = source.randrange(4)
                return {"type": "string", "minLength": least, "maxLength": least + source.randrange(12)}
            case 3 if source.random() < OPEN:
                return {"type": "string"}
        return {"type": "string", "maxLength": source.randrange(1, 25)}

    def integer(self) -> dict[str, Json]:
        """A whole number within bounds, or without."""
        source, found = self.source, dict[str, Json](type="integer")
        least = source.randrange(-1000, 1000)
        if source.random() < 0.7:
            found[source.choice(("minimum", "exclusiveMinimum"))] = least
        if source.random() < 0.7:
            found[source.choice(("maximum", "exclusiveMaximum"))] = least + source.randrange(20, 5000)
        if source.random() < 0.1:
            found = {"type": "integer", "multipleOf": source.choice((2, 5, 10)), "minimum": 0, "maximum": 500}
        return found

    def number(self) -> dict[str, Json]:
        """A number within bounds, or without."""
        source, found = self.source, dict[str, Json](type="number")
        least = round(source.uniform(-50, 50), 2)
        if source.random() < 0.6:
            found["minimum"] = least
        if source.random() < 0.6:
            found["maximum"] = round(least + source.uniform(0.5, 90), 2)
        return found

    def choice(self) -> dict[str, Json]:
        """One of several values."""
        source = self.source
        values: list[Json] = [source.choice(WORDS), source.randrange(99), source.random() < 0.5, None, 1.5, [1, "a"]]
        return {"enum": source.sample(values, source.randrange(1, 5))}

    def constant(self) -> dict[str, Json]:
        """One value."""
        values: tuple[Json, ...] = ("fixed", 7, None, {"a": 1}, ["x", 2])
        return {"const": self.source.choice(values)}

    def simple(self) -> dict[str, Json]:
        """A truth value, nothing, one of two types, or a feature that few libraries hold answers to."""
        source = self.source
        if source.random() < RARE * 6:
            rare: tuple[dict[str, Json], ...] = (
                {"not": {"type": "null"}},
                {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "maxItems": 3},
                {"type": "array", "contains": {"const": 1}, "maxItems": 3},
                {"if": {"type": "string"}, "then": {"maxLength": 3}, "type": ["string", "null"]},
                {"type": "string", "pattern": "^(?!a)[a-c]{3}$"},
            )
            return source.choice(rare)
        common: tuple[dict[str, Json], ...] = (
            {"type": "boolean"},
            {"type": "null"},
            {"type": ["integer", "null"], "minimum": 3},
        )
        return source.choice(common)

    def object(self, depth: int) -> dict[str, Json]:
        """Some properties, some of them required, and what else may stand beside them."""
        source = self.source
        names = source.sample(WORDS, source.randrange(1, 6))
        found: dict[str, Json] = {
            "type": "object",
            "properties": {name: self.any(depth - 1) for name in names},
            "required": [name for name in names if source.random() < 0.7],
        }
        more = source.random()
        if more < 0.8:
            found["additionalProperties"] = False
        elif more < 0.95:
            found["additionalProperties"] = self.simple()
        if source.random() < 0.06:
            found["patternProperties"] = {"^z_": {"type": "integer"}}
        return found

    def array(self, depth: int) -> dict[str, Json]:
        """A list of one kind, or a tuple."""
        source, least = self.source, self.source.randrange(3)
        if source.random() < 0.2:
            kinds: list[Json] = [self.any(depth - 1) for _ in range(source.randrange(1, 4))]
            return {"type": "array", "prefixItems": kinds, "items": False, "minItems": len(kinds)}
        most = least + source.randrange(1, 4)
        return {"type": "array", "items": self.any(depth - 1), "minItems": least, "maxItems": most}

    def alternatives(self, depth: int) -> dict[str, Json]:
        """One of several schemas, which a property tells apart where only one may hold."""
        source = self.source
        if source.random() < 0.3:
            kinds: list[Json] = [
                {
                    "type": "object",
                    "properties": {"kind": {"const": name}, "value": self.any(depth - 1)},
                    "required": ["kind", "value"],
                    "additionalProperties": False,
                }
                for name in source.sample(WORDS, 2)
            ]
            return {"oneOf": kinds}
        return {"anyOf": [self.any(depth - 1) for _ in range(source.randrange(2, 4))]}

    def reference(self, depth: int) -> dict[str, Json]:
        """Something that is defined once; now and then by itself."""
        source = self.source
        name = source.choice(("one", "two", "tree"))
        if name not in self.definitions:
            self.definitions[name] = True  # referred to from within
            self.definitions[name] = self.tree() if name == "tree" else self.any(0)
        return {"$ref": f"#/$defs/{name}"}

    def tree(self) -> dict[str, Json]:
        """A node whose children are nodes."""
        return {
            "type": "object",
            "properties": {
                "value": self.integer(),
                "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
            },
            "required": ["value", "children"],
            "additionalProperties": False,
        }

    def all_of(self, depth: int) -> dict[str, Json]:
        """Two schemas that both hold."""
        first, second = self.object(depth - 1), self.integer()
        first.pop("additionalProperties", None)
        second = {"type": "object", "properties": {"extra": second}, "required": ["extra"]}
        return {"allOf": [first, second]}


def schema_of(seed: int) -> dict[str, Json]:
    """The schema of this seed."""
    return Maker(random.Random(seed)).schema()
