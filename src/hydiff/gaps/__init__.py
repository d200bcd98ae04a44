"""Gaps of a cube: rules, masks, census, suspected damage and simulated damage."""
