"""What a browser or a scraper sees of a running process."""
