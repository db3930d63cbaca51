//! SSE events and HTTP chunks as bytes.

use crate::config::MockConfig;

/// How events look on the wire.
pub(crate) struct Framing {
    eol: &'static [u8],
    data: &'static [u8],
    named: bool,
    bom: bool,
}

impl Framing {
    pub(crate) fn new(config: &MockConfig) -> Self {
        Framing {
            eol: if config.crlf { b"\r\n" } else { b"\n" },
            data: if config.no_space { b"data:" } else { b"data: " },
            named: config.event_field,
            bom: config.bom,
        }
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.bom) {
            out.extend_from_slice("\u{feff}".as_bytes());
        }
    }

    /// Appends one event. `name` overrides the configured event field.
    pub(crate) fn event(&mut self, name: Option<&str>, data: &[u8], out: &mut Vec<u8>) {
        self.start(out);
        if let Some(name) = name.or(self.named.then_some("message")) {
            out.extend_from_slice(b"event: ");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(self.eol);
        }
        out.extend_from_slice(self.data);
        out.extend_from_slice(data);
        out.extend_from_slice(self.eol);
        out.extend_from_slice(self.eol);
    }

    /// Appends a keep-alive comment.
    pub(crate) fn comment(&mut self, out: &mut Vec<u8>) {
        self.start(out);
        out.extend_from_slice(b": keep-alive");
        out.extend_from_slice(self.eol);
        out.extend_from_slice(self.eol);
    }
}

/// The chunk that ends a chunked body.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Replaces `out` by `payload` as one HTTP chunk.
pub(crate) fn http_chunk(payload: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.clear();
    let digits = (payload.len().checked_ilog2().unwrap_or(0) / 4) as usize;
    for digit in (0..=digits).rev() {
        out.push(HEX[(payload.len() >> (4 * digit)) & 15]);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(config: MockConfig) -> String {
        let mut framing = Framing::new(&config);
        let mut out = Vec::new();
        framing.event(None, b"{}", &mut out);
        framing.comment(&mut out);
        framing.event(Some("error"), b"[DONE]", &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_framing_option() {
        let base = MockConfig::default;
        assert_eq!(
            stream(base()),
            "data: {}\n\n: keep-alive\n\nevent: error\ndata: [DONE]\n\n"
        );
        assert_eq!(
            stream(MockConfig {
                crlf: true,
                no_space: true,
                bom: true,
                event_field: true,
                ..base()
            }),
            "\u{feff}event: message\r\ndata:{}\r\n\r\n: keep-alive\r\n\r\nevent: error\r\ndata:[DONE]\r\n\r\n"
        );
    }

    #[test]
    fn chunk_sizes_have_no_leading_zeros() {
        for len in [1usize, 15, 16, 255, 256, 4095, 4096, 70_000] {
            let mut out = Vec::new();
            http_chunk(&vec![b'x'; len], &mut out);
            let want = format!("{len:x}\r\n");
            assert!(out.starts_with(want.as_bytes()));
            assert_eq!(out.len(), want.len() + len + 2);
        }
    }
}
