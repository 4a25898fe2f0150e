"""Reading the text of a batch out of its gradient, without any optimisation."""
