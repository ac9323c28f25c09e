"""Many sites on one machine, for `load.py`: their processes are forked from one that has loaded everything.

`python -m benchmarks.light_sites FILE`, where each line of the file has the words of one `imperfed join`, as JSON, and
where its output goes. From there on each site does what it does on its own machine. What is missing is its start, 2 s
for loading torch, and the memory that a site has to itself: 200 MB, which a machine has not a hundred times.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from imperfed.flower.processes.child import Child, environment


class Forked:
    """A forked process, with as much of `subprocess.Popen` as `Child` uses."""

    def __init__(self, pid: int) -> None:
        self.pid, self.code = pid, None

    def poll(self) -> int | None:
        if self.code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if ended else None
        return self.code


def fork(work: Callable[[], object], out: Path, variables: dict[str, str]) -> int:
    """Run a function in a forked process with its own session, output and environment; return its number."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.setsid()
        os.environ |= variables
        descriptor = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for standard in (1, 2):
            os.dup2(descriptor, standard)
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def start_by_fork(self: Child) -> Child:
    """Start a site's node, in place of `Child.start`."""
    from imperfed.flower.processes import site_node

    def work() -> None:
        sys.argv = list(self.command[2:])
        site_node.main()

    self.home.mkdir(parents=True, exist_ok=True)
    self.log.touch()
    self.began = self.log.stat().st_size
    self.popen = Forked(fork(work, self.log, environment(self.home) | dict(self.variables)))  # type: ignore[assignment]
    return self


def main() -> None:
    """Fork one `imperfed join` for every line, and wait."""
    os.environ |= environment(Path(os.environ.get("TMPDIR", "/tmp")))  # before Flower is imported
    import torch

    from imperfed.cli.app import main as run
    from imperfed.flower import apps
    from imperfed.flower.processes import site_node

    assert site_node
    torch.set_num_threads(1)
    apps.prepare()
    Child.start = start_by_fork  # type: ignore[method-assign]
    gc.collect()
    gc.freeze()
    for line in Path(sys.argv[1]).read_text().splitlines():
        words, out = json.loads(line)
        sys.argv = ["imperfed", *words]
        fork(run, Path(out), {})
    while True:
        os.wait()


if __name__ == "__main__":
    main()
