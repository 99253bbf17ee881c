"""The samplers by name; a module here enters its own."""

from longtail._registry import Registry
from longtail.data.samplers.base import EpochSampler

SAMPLERS = Registry[type[EpochSampler]]("samplers")
