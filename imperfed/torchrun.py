"""torchrun that ends as the program does: `python -m imperfed.torchrun` takes torchrun's own words.

Under torchrun itself, a log line and a traceback of torchrun follow the message with which a run ends, whatever the
run does: they come from torchrun's own process.
"""

from __future__ import annotations

import logging
import sys

from torch.distributed import run
from torch.distributed.elastic.multiprocessing import api
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError


def main() -> None:
    """Start the ranks; end with the exit code of the one that failed."""
    logging.getLogger(api.__name__).setLevel(logging.CRITICAL)
    try:
        run.main()
    except ChildFailedError as error:
        codes = [failure.exitcode for failure in error.failures.values()]
        sys.exit(next((code for code in codes if code > 0), 1))


if __name__ == "__main__":
    main()
