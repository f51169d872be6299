"""Whether the average of a period can run while workers take their next steps."""
