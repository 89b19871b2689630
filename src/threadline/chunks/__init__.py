"""Values to items to trees to chunks, and back; and the collection of chunks nobody needs."""
