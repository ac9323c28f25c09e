"""Real sites: the same algorithms over Flower. Imported only where needed; requires the extra `flower`."""

from imperfed.flower.processes.versions import check_version

check_version()
