"""One module for each figure: ``build(inputs, name) -> Sheet``.

Shared panels in curves, histograms and sweeps.
"""
