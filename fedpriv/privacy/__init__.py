"""What a run spends of its privacy budget, by whom it is seen."""
