"""The commands, one module each, with the same name; each binds `command`."""
