"""Folders, files, seeds, processes: knows nothing of documents or of privacy."""
