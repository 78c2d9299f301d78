"""The federated training loop: executes a privacy plan and records what it did."""
