"""What an attack's answers are worth, held against the truth."""
