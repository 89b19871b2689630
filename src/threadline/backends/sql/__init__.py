"""The Backend port over SQL, once; dialects and drivers hold only what differs."""
