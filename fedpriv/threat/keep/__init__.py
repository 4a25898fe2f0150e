"""What a run keeps for attacks: a transcript, documents held out, scrubbed fields."""
