"""Side-by-side measurements against bare system calls, run by `make bench`."""
