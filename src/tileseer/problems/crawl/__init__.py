"""The convolutions of networks: of the shipped zoo, and of a user's own model (extra ``crawl``)."""
