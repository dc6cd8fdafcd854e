"""shipgen: one policy file for a Ray cluster's logs, rendered for any log shipper."""

__version__ = "0.1.0"
