"""Empirical privacy audits: attacks on the code that trains, and the lower bounds on ε that their success proves."""
