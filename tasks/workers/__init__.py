"""The processes that own the devices: server, child, launch, guard, devices."""
