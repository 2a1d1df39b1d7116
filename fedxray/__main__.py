"""`python -m fedxray` is the same as `fedxray`."""

from __future__ import annotations

from fedxray.cli import main

if __name__ == "__main__":
    main()
