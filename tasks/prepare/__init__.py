"""Raw data to TFRecord shards: plan, encode, write, verify. No TensorFlow here."""
