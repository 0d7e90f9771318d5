"""The convolutions of a user's own model (extra ``crawl``)."""
