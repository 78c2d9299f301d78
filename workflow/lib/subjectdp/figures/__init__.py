"""The papers' figures and the tables that they read."""
