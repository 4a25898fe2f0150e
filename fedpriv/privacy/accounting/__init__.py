"""What a sequence of noisy releases costs, by four accountants."""
