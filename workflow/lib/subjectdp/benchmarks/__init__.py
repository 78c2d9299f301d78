"""The benchmark suite behind ``subjectdp bench``: private steps against plain SGD and against other libraries."""
