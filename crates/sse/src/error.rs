use thiserror::Error;

/// Why a byte stream cannot be decoded any further.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SseError {
    /// One event, blank line excluded, grew over the limit; nothing after it is decoded.
    #[error("event larger than the limit of {limit} bytes")]
    EventTooLarge {
        /// The limit that was passed.
        limit: usize,
    },
    /// The event parser refused an event whose lines were all complete.
    #[error("event of {bytes} bytes refused by the event parser: {reason}")]
    Rejected {
        /// Size of the event.
        bytes: usize,
        /// The parser's own words.
        reason: String,
    },
}
