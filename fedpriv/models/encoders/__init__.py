"""Encoders of words in boxes: BERT, BROS, LayoutLM."""
