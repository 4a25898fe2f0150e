"""From a document to a model's input."""
