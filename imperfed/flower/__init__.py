"""Real sites: the same algorithms over Flower. Imported only where it is used; needs the extra `flower`."""

from imperfed.flower.versions import check_version

check_version()
