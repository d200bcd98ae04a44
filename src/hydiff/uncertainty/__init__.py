"""Draws of the error of a fill: whole cubes that agree with the data as well as the fill does."""
