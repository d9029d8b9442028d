"""What a server reports of itself to other programs: numbers over time, traces, and the form of its log."""
