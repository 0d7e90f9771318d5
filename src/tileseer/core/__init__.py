"""Foundations that know nothing of convolutions: errors, whole files, seals, tables, draws, caches, locks."""
