"""Strict stand-ins for the servers that sinks write to. Each speaks its protocol, keeps what it was given, and notes
what a real server would have refused or what no server should have to put up with."""
