"""The policy resolved: defaults filled in, presets expanded, shipper-neutral. Targets read this, never the policy."""

from shipgen.pipeline.model import Pipeline
from shipgen.pipeline.resolve import resolve

__all__ = ["Pipeline", "resolve"]
