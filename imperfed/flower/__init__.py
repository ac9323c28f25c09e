"""Real sites: the same algorithms over Flower. Imported only where it is used; needs the extra `flower`."""

from imperfed.flower.processes.versions import check_version

check_version()
