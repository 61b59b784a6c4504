"""The processes that own the devices: server, launch, watch, devices."""
