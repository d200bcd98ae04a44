"""Run the command line: `python -m hydiff` is the same as `hydiff`."""

from hydiff.cli import main

main()
