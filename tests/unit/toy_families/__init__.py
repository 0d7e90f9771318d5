"""Where the toy family of test_families.py lies."""
