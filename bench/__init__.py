"""Side by side against peers, in one run, on the same brokers and the same data."""
