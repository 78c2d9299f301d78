"""One module per figure: ``build(inputs, name) -> Sheet``. Shared panels are in curves, histograms and sweeps."""
