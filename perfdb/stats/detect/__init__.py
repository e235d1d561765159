"""Change points in noisy benchmark histories, one idea a file; `perfdb.stats.changes` is the door."""
