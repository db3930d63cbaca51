//! What to send.
