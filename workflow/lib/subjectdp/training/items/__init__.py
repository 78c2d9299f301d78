"""The run's items on its device: inputs, fixed features."""
