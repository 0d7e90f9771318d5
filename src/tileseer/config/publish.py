"""Section ``publish`` of the configuration."""

from tileseer.config.section import Section


class PublishSettings(Section):
    """What publishing may replace."""

    replace: bool = False
    """Whether models of measured times may be replaced by models of recorded or simulated times."""
