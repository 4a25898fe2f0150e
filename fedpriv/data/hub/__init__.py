"""Data sets of the `datasets` library, from the hub or from a folder: `data=hf`."""
