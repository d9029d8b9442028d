"""The record that clients with pydantic are asked for."""

from __future__ import annotations

from pydantic import BaseModel


class Person(BaseModel):
    name: str
    age: int
