//! An OpenAI-compatible server with a known truth.
