"""The plugin's own tests, where there is a Node to run them."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from openclaw_install import run_plugin_tests

LEAST_NODE = 22


def test_the_plugin_s_own_tests_pass() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    if int(version.strip().removeprefix("v").partition(".")[0]) < LEAST_NODE:
        pytest.skip(f"node {version.strip()} is older than {LEAST_NODE}")
    run_plugin_tests(node)
