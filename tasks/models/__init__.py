"""Build functions, each a plain Keras model, and the layers that make replicas agree."""
