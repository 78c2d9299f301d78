"""Subject-granular differential privacy in federated learning: the library behind the workflow."""

__version__ = "0.1.0"
