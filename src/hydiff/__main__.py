"""`python -m hydiff` is `hydiff`."""

from hydiff.cli import main

main()
