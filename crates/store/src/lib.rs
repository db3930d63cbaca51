//! A run directory on disk: append, resume, read back, export.
