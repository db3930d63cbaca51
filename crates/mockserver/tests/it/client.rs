//! A client that sees every byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How the connection looked after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The body ended as its head promised.
    Complete,
    /// FIN in the middle of the body, or before a head.
    Fin,
    /// TCP reset.
    Reset,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// De-chunked.
    pub(crate) body: Vec<u8>,
    /// Sizes of the HTTP chunks.
    pub(crate) chunks: Vec<usize>,
    pub(crate) end: End,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|l| {
            let (n, v) = l.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| v.trim())
        })
    }

    /// The data of each event, with LF framing.
    pub(crate) fn events(&self) -> Vec<&str> {
        let blocks = self.text().split("\n\n").filter(|b| !b.is_empty());
        blocks
            .filter_map(|b| b.lines().find_map(|l| l.strip_prefix("data: ")))
            .collect()
    }

    /// The events that are JSON.
    pub(crate) fn chunks_json(&self) -> Vec<Value> {
        let events = self.events().into_iter().filter(|e| *e != "[DONE]");
        events
            .map(|e| serde_json::from_str(e).unwrap_or_else(|x| panic!("{x}: {e}")))
            .collect()
    }

    /// The texts of the events with choices, chat or not.
    pub(crate) fn texts(&self) -> Vec<String> {
        let text = |v: &Value| {
            let choice = &v["choices"][0];
            let text = choice["text"]
                .as_str()
                .or(choice["delta"]["content"].as_str());
            text.map(str::to_owned)
        };
        self.chunks_json().iter().filter_map(text).collect()
    }

    /// The finish reason of the stream, if it has one.
    pub(crate) fn finish(&self) -> Option<String> {
        let reason = |v: &Value| v["choices"][0]["finish_reason"].as_str().map(str::to_owned);
        self.chunks_json().iter().find_map(reason)
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    ahead: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        // Only so that a broken server fails a test instead of hanging it.
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Client {
            stream,
            ahead: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads more; `Err` says how the connection ended.
    pub(crate) fn more(&mut self) -> Result<(), End> {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(End::Fin),
            Ok(n) => {
                self.ahead.extend_from_slice(&buffer[..n]);
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::ConnectionReset => Err(End::Reset),
            Err(e) => panic!("{e} after {:?}", String::from_utf8_lossy(&self.ahead)),
        }
    }

    /// Whether nothing is there to read now, the connection being open.
    pub(crate) fn silent(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let read = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        read.is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
    }

    /// What was read and is not part of an answer yet.
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    fn find(&self, from: usize, what: &[u8]) -> Option<usize> {
        self.ahead
            .get(from..)?
            .windows(what.len())
            .position(|w| w == what)
            .map(|i| from + i)
    }

    /// Reads one answer.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = Answer {
            status: 0,
            head: String::new(),
            body: Vec::new(),
            chunks: Vec::new(),
            end: End::Complete,
        };
        if let Err(end) = self.read_answer(&mut answer) {
            answer.end = end;
        }
        answer
    }

    fn read_answer(&mut self, answer: &mut Answer) -> Result<(), End> {
        let head_end = loop {
            match self.find(0, b"\r\n\r\n") {
                Some(i) => break i + 4,
                None => self.more()?,
            }
        };
        answer.head = String::from_utf8(self.ahead.drain(..head_end).collect()).unwrap();
        answer.status = answer.head.split(' ').nth(1).unwrap().parse().unwrap();
        if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().unwrap();
            while self.ahead.len() < length {
                if let Err(end) = self.more() {
                    answer.body = std::mem::take(&mut self.ahead);
                    return Err(end);
                }
            }
            answer.body = self.ahead.drain(..length).collect();
            return Ok(());
        }
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
        loop {
            let line_end = loop {
                match self.find(0, b"\r\n") {
                    Some(i) => break i,
                    None => self.more()?,
                }
            };
            let line = String::from_utf8(self.ahead[..line_end].to_vec()).unwrap();
            let size = usize::from_str_radix(&line, 16).unwrap();
            let end = line_end + 2 + size + 2;
            while self.ahead.len() < end {
                self.more()?;
            }
            assert_eq!(&self.ahead[end - 2..end], b"\r\n");
            answer
                .body
                .extend_from_slice(&self.ahead[line_end + 2..end - 2]);
            self.ahead.drain(..end);
            if size == 0 {
                return Ok(());
            }
            answer.chunks.push(size);
        }
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Answer {
        self.send(&post_bytes(path, body));
        self.answer()
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: mock\r\n\r\n").as_bytes());
        self.answer()
    }
}

pub(crate) fn post_bytes(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: mock\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// One request on a connection of its own.
pub(crate) fn post(addr: SocketAddr, path: &str, body: &str) -> Answer {
    Client::connect(addr).post(path, body)
}

/// A streamed completion of `max_tokens` tokens.
pub(crate) fn stream(addr: SocketAddr, max_tokens: u64) -> Answer {
    post(addr, COMPLETIONS, &stream_body(max_tokens))
}

pub(crate) fn stream_body(max_tokens: u64) -> String {
    format!(
        r#"{{"model":"mock","prompt":[1,2,3],"max_tokens":{max_tokens},"stream":true,"stream_options":{{"include_usage":true}}}}"#
    )
}

/// A streamed chat of `max_tokens` tokens.
pub(crate) fn chat(addr: SocketAddr, max_tokens: u64) -> Answer {
    let body = format!(
        r#"{{"model":"mock","messages":[{{"role":"user","content":"say it"}}],"max_tokens":{max_tokens},"stream":true,"stream_options":{{"include_usage":true}}}}"#
    );
    post(addr, CHAT, &body)
}

pub(crate) const COMPLETIONS: &str = "/v1/completions";
pub(crate) const CHAT: &str = "/v1/chat/completions";
