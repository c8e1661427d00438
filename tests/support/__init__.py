"""What every test above the unit level shares: processes, a Dynamo stack, waiting, a client."""
