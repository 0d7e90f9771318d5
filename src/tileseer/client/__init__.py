"""What users ask of published models: selection, scores, comparison, verification."""
