//! Drives an OpenAI-compatible endpoint and emits a record of every read.
