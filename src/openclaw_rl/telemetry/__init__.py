"""A server's reports to other programs: metrics over time, traces, and the log's format."""
