"""What is missing and why: the rule, patterns, census, suspected damage, simulated damage."""
