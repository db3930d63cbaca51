use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use memchr::memchr;

/// The complete lines of one event as the byte stream that the event parser pulls from.
///
/// The parser copies the rest of its buffer for every line it takes out of it, so it is given one line at a
/// time: its buffer then never holds a second one, and the cost stays linear in the event. The blank line
/// that ends the event is the exception. It travels with the line before it, which saves a round and costs
/// a copy of one byte.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
    /// The parser drops a BOM at the very start by slicing one byte off a three-byte character, which
    /// panics. Behind an empty line it is past its start and leaves the character alone.
    prime: bool,
}

impl<'a> Lines<'a> {
    /// The lines of `event`: valid UTF-8, every line ended by `\n`, the last one blank.
    pub(crate) fn new(event: &'a str) -> Self {
        Lines {
            rest: event.as_bytes(),
            prime: event.starts_with('\u{feff}'),
        }
    }
}

impl<'a> Stream for Lines<'a> {
    type Item = Result<&'a [u8], Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.prime {
            self.prime = false;
            return Poll::Ready(Some(Ok(b"\n")));
        }
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let len = self.rest.len();
        let mut end = memchr(b'\n', self.rest).map_or(len, |at| at + 1);
        if end + 1 == len {
            end = len;
        }
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest;
        Poll::Ready(Some(Ok(line)))
    }
}
