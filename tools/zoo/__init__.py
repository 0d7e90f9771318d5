"""The zoo: the networks of public packages whose layers are config/problems/layers.csv, and how they are crawled."""
