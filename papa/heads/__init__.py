"""What attention is replaced by, in encoders of studies and in in-memory models."""
