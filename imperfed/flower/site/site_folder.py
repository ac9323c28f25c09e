"""The names of files in a site's state folder that several processes of the site read or write."""

from __future__ import annotations

LOG = "log.txt"
"""Every message, and why the site could not answer one."""
TROUBLE = "trouble.txt"
"""In the folder of a run: what was wrong with it when it had ended; `imperfed join` ends with these words."""
ENDED = "ended"
"""In the folder of a run, empty: its time says when the coordinator last ended the run here."""
AGREEMENT = "agreement.json"
"""In the folder of a run: what the site has agreed to."""
NODE_HOME = "flower"
"""The folder of the site's node, for files that its processes leave for one another."""
MOST_BYTES = 2**30
"""The most bytes of a message that a site takes without a policy of its own."""
