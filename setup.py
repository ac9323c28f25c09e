"""What an index shows of the README: links into the repository would lead nowhere there, so their text stays alone.

Everything else about the package is in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import setup

PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n\n?", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\((?!https?://)[^)]*\)")


def on_an_index(text: str) -> str:
    """Return a page without its pictures and links into the repository."""
    return LINK.sub(r"\1", PICTURE.sub("", text))


if __name__ == "__main__":
    readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    setup(long_description=on_an_index(readme), long_description_content_type="text/markdown")
