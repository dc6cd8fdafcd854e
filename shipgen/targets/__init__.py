"""One module a shipper: what it can do, and the context for its templates."""
