"""The comparisons of the algorithms' tests serve here too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "algorithms"))
