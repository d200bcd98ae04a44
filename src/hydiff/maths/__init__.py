"""Arrays in, arrays out: NumPy and SciPy only, no files and no printing."""
