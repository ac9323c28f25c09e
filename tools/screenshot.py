"""Take the picture of a page: `python tools/screenshot.py RUN/report.html docs/report-hospitals.png [WIDTH HEIGHT]`.

The pictures of pages in the documentation are made in this way, with Chromium: `report-hospitals.png` (1000 1070) from
the run of README, `report.png` (825 1860) from that of docs/candidate-sets.md. `census-hospitals.png` and
`census-crowd.png` are files that `imperfed inspect` writes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking")


def take(page: Path, target: Path, width: int, height: int) -> None:
    """Open a page in a window of this size and write what it shows."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        sys.exit(f"error: no browser is installed; looked for {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory() as profile:
        asked = [f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--screenshot={target.resolve()}"]
        subprocess.run([program, *QUIET, *asked, page.resolve().as_uri()], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 5):
        sys.exit(__doc__)
    size = [int(word) for word in sys.argv[3:]] or [1000, 1070]
    take(Path(sys.argv[1]), Path(sys.argv[2]), *size)
