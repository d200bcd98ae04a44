"""Who does the work: this process, its children, or Dask's workers."""
