"""CDMI: reconstructing scrubbed fields of documents."""
