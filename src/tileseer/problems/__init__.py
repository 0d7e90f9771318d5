"""The problems stage: what is trained on, and what is held out."""
