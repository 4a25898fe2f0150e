"""Your own folder: pictures and PDFs, words from side files or by OCR, labels from a table."""
