"""What a dispatcher gets of a trained model: a small model, C++ text, lookup table, kernel list and guarantees."""
