"""What surrounds the data: one file a resource, all with one shape (read both sides, diff, plan, apply)."""
