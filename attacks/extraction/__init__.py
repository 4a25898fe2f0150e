"""Extraction of training answers from models that answer questions (Pinto et al. 2024)."""
