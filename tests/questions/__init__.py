"""What keyword search is asked, over which sessions, and what it has to find; see `index.md`."""
