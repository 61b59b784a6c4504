"""The SavedModel: signatures, and parity before it gets its name."""
