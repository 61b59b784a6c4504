"""Raw data to local disk: resumable, verified, never parsed."""
