"""What the README shows must run, and what it points to must be there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in example.splitlines() if line]) == 5
    exec(compile(example, "README.md", "exec"), {})


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_every_make_target_that_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"make ([a-z-]+)", README))
    assert {"demo", "test"} <= named
    assert named <= targets
