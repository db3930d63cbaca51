use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use eventsource_stream::EventStream;
use futures_core::Stream;
use memchr::memchr2;

use crate::SseError;
use crate::lines::Lines;

/// Largest event that is taken by default: 64 MiB.
pub const DEFAULT_MAX_EVENT_BYTES: usize = 64 << 20;

/// A buffer that one huge event blew up is given back down to this size.
const KEEP_CAPACITY: usize = 1 << 20;

const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

/// One thing found in an event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SseItem<'a> {
    /// A dispatched event: it had at least one `data` line.
    Event {
        /// Its type; `message` when the stream named none.
        event: &'a str,
        /// Its `data` lines, joined by `\n`.
        data: &'a str,
    },
    /// A comment line, as servers send them to keep a connection alive.
    Comment,
}

/// Splits pushed bytes into server-sent events: the same events for every split of the bytes.
///
/// Parsing of fields and events is `eventsource-stream`'s. This type stands in front of it and takes away
/// what that crate cannot be given: it finds line ends itself (LF, CRLF, CR; a CR at the end of a read ends
/// its line at once), strips a leading byte order mark even if it is split, replaces invalid UTF-8, and hands
/// over complete events a line at a time.
///
/// ```
/// use linktax_sse::{SseDecoder, SseItem};
///
/// let mut decoder = SseDecoder::default();
/// let mut seen = Vec::new();
/// let mut sink = |item: SseItem<'_>| {
///     if let SseItem::Event { data, .. } = item {
///         seen.push(data.to_owned());
///     }
/// };
/// decoder.push(b"data: one\n\nda", &mut sink)?;
/// decoder.push(b"ta: two\r", &mut sink)?;
/// decoder.push(b"\n\r\n", &mut sink)?;
/// assert_eq!(seen, ["one", "two"]);
/// assert!(decoder.finish().is_empty());
/// # Ok::<(), linktax_sse::SseError>(())
/// ```
#[derive(Debug)]
pub struct SseDecoder {
    /// The complete lines of the event in progress, each ended by `\n`, then the bytes of the line in progress.
    buf: Vec<u8>,
    /// Where the line in progress starts in `buf`.
    line_start: usize,
    /// The last byte was a CR that ended a line: an LF now belongs to it.
    skip_lf: bool,
    /// Bytes of a leading BOM matched so far; `None` once the start of the stream is behind us.
    bom: Option<usize>,
    max_event_bytes: usize,
    failed: Option<SseError>,
}

impl Default for SseDecoder {
    fn default() -> Self {
        SseDecoder::new(DEFAULT_MAX_EVENT_BYTES)
    }
}

impl SseDecoder {
    /// A decoder at the start of a stream that takes events of at most `max_event_bytes`.
    pub fn new(max_event_bytes: usize) -> Self {
        SseDecoder {
            buf: Vec::new(),
            line_start: 0,
            skip_lf: false,
            bom: Some(0),
            max_event_bytes,
            failed: None,
        }
    }

    /// Decodes the next bytes of the stream and calls `sink` for every item that they complete, in order.
    ///
    /// # Errors
    ///
    /// [`SseError::EventTooLarge`] as soon as the event in progress passes the limit. The stream has lost its
    /// place then, so every later call fails with the same error.
    pub fn push(
        &mut self,
        bytes: &[u8],
        sink: &mut impl FnMut(SseItem<'_>),
    ) -> Result<(), SseError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.split(bytes, sink).inspect_err(|error| {
            self.failed = Some(error.clone());
            self.buf = Vec::new();
            self.line_start = 0;
        })
    }

    /// Ends the stream: the bytes of an event that no blank line ended, which the standard says to drop.
    ///
    /// Line ends in it are `\n`, comments are left out.
    pub fn finish(self) -> Vec<u8> {
        match self.bom {
            Some(matched) => BOM[..matched].to_vec(),
            None => self.buf,
        }
    }

    fn split(&mut self, bytes: &[u8], sink: &mut impl FnMut(SseItem<'_>)) -> Result<(), SseError> {
        let mut rest = self.strip_bom(bytes);
        if self.skip_lf && !rest.is_empty() {
            self.skip_lf = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            // The common case, one data line and its blank line in one read, is never copied here.
            if self.buf.is_empty() && end > 0 && rest[0] != b':' && rest[end..].starts_with(b"\n\n")
            {
                self.check_fits(end)?;
                dispatch(&rest[..end + 2], sink)?;
                rest = &rest[end + 2..];
                continue;
            }
            self.append(&rest[..end])?;
            rest = match &rest[end..] {
                [b'\r', b'\n', after @ ..] | [_, after @ ..] => after,
                [] => &[],
            };
            self.skip_lf = rest.is_empty() && bytes.last() == Some(&b'\r');
            self.end_line(sink)?;
        }
        self.append(rest)
    }

    /// Drops a byte order mark at the start of the stream, however it is split over reads.
    fn strip_bom<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut rest = bytes;
        while let (Some(matched), Some((&byte, after))) = (self.bom, rest.split_first()) {
            if byte == BOM[matched] {
                rest = after;
                self.bom = (matched + 1 < BOM.len()).then_some(matched + 1);
            } else {
                self.buf.extend_from_slice(&BOM[..matched]);
                self.bom = None;
            }
        }
        rest
    }

    fn check_fits(&self, more: usize) -> Result<(), SseError> {
        // The line end after the last line does not count, so that it is the same for every split.
        if more > 0 && self.buf.len().saturating_add(more) > self.max_event_bytes {
            return Err(SseError::EventTooLarge {
                limit: self.max_event_bytes,
            });
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        self.check_fits(bytes.len())?;
        self.buf.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, sink: &mut impl FnMut(SseItem<'_>)) -> Result<(), SseError> {
        match self.buf.get(self.line_start) {
            // Comments are reported here, because the event parser swallows them.
            Some(b':') => {
                self.buf.truncate(self.line_start);
                sink(SseItem::Comment);
            }
            Some(_) => {
                self.buf.push(b'\n');
                self.line_start = self.buf.len();
            }
            None if self.buf.is_empty() => {}
            None => {
                self.buf.push(b'\n');
                let dispatched = dispatch(&self.buf, sink);
                self.buf.clear();
                self.buf.shrink_to(KEEP_CAPACITY);
                self.line_start = 0;
                dispatched?;
            }
        }
        Ok(())
    }
}

/// Runs one complete event, blank line included, through the event parser.
fn dispatch(event: &[u8], sink: &mut impl FnMut(SseItem<'_>)) -> Result<(), SseError> {
    // A replacement never eats a line end, so this is the same as doing it line by line.
    let text = match std::str::from_utf8(event) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(event),
    };
    let mut events = EventStream::new(Lines::new(&text));
    // The lines are all there, so the parser never waits and the waker is never used.
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(&mut events).poll_next(&mut context) {
        Poll::Ready(Some(Ok(parsed))) => {
            sink(SseItem::Event {
                event: &parsed.event,
                data: &parsed.data,
            });
            Ok(())
        }
        Poll::Ready(Some(Err(error))) => Err(SseError::Rejected {
            bytes: event.len(),
            reason: error.to_string(),
        }),
        // No data line: the standard says to dispatch nothing.
        Poll::Ready(None) | Poll::Pending => Ok(()),
    }
}
