"""What the README shows must run, and what it points to must be there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_examples_run_one_after_the_other() -> None:
    first, *others = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in first.splitlines() if line]) == 5
    assert others
    names: dict[str, object] = {}
    for example in (first, *others):
        exec(compile(example, "README.md", "exec"), names)


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_make_target_that_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"make ([a-z-]+)", README))
    assert {"demo", "test"} <= named
    assert named <= targets
