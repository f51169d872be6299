"""Plans: checked over shaped networks, and drawn for a model."""
