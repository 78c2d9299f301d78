"""Times of private training steps against plain SGD and other libraries: ``python -m benchmarks`` in a checkout."""
