"""`python -m fedpriv`, the same as `fedpriv`."""

import sys

from fedpriv.cli.main import main

sys.exit(main())
