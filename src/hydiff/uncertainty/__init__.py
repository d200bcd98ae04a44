"""What a fill may be off by, as draws: whole cubes that agree with the data as well as it does."""
