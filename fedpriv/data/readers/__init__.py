"""One reader for each format of documents that people have."""
