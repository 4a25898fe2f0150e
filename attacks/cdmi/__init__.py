"""CDMI: reconstructing scrubbed fields of documents (000)."""
