"""Who was in the training set: attacks on the membership of providers."""
