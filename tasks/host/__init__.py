"""What concerns the machine: doctor."""
