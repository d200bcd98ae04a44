"""Functions of arrays that use NumPy and SciPy only, without files and printing."""
