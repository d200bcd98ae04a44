"""Fills of any size: one file, a scene by tiles, an archive of files."""
