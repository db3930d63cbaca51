//! A server that says exactly what a test tells it to, byte for byte.

use std::net::SocketAddr;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A request as it came.
pub(crate) struct Asked {
    /// `GET /v1/models`.
    pub(crate) line: String,
    head: String,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|l| {
            let (n, v) = l.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| v.trim())
        })
    }

    /// Whether this is a request of a phase, not a probe.
    pub(crate) fn counts(&self) -> bool {
        self.header("x-request-id").is_some()
    }
}

/// What the server does next on a connection.
#[derive(Clone, Debug)]
pub(crate) enum Say {
    Bytes(Vec<u8>),
    /// The bytes in pieces of this size, each in a write of its own.
    Pieces(Vec<u8>, usize),
    Pause(Duration),
    /// Closes the connection.
    Fin,
    /// Resets the connection.
    Reset,
    /// Says nothing more until the client leaves.
    Hang,
}

pub(crate) struct Scripted {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    /// Answers each request with what `script` says.
    pub(crate) fn spawn<F>(script: F) -> Scripted
    where
        F: Fn(&Asked) -> Vec<Say> + Send + 'static,
    {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let tasks = tokio::task::LocalSet::new();
            let accepting = tasks.run_until(accept(listener, Rc::new(script)));
            runtime.block_on(async {
                tokio::select! {
                    () = accepting => {}
                    _ = stopped => {}
                }
            });
        });
        Scripted {
            addr,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// A server that lists the model `tiny`, answers the probe properly, and each other generation request with
    /// what `script` says of it and of its number from 0.
    pub(crate) fn generating<F>(script: F) -> Scripted
    where
        F: Fn(u64, &Asked) -> Vec<Say> + Send + 'static,
    {
        let number = std::cell::Cell::new(0);
        Scripted::spawn(move |asked| match asked.line.as_str() {
            "GET /v1/models" => vec![Say::Bytes(json(200, r#"{"data":[{"id":"tiny"}]}"#))],
            _ if !asked.line.starts_with("POST") => vec![Say::Bytes(json(404, "{}"))],
            _ if asked.counts() => {
                let n = number.get();
                number.set(n + 1);
                script(n, asked)
            }
            line if line.contains("chat") => vec![Say::Bytes(stream(&good_chat()))],
            _ => vec![Say::Bytes(stream(&good(4)))],
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn accept<F>(listener: std::net::TcpListener, script: Rc<F>)
where
    F: Fn(&Asked) -> Vec<Say> + 'static,
{
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        tokio::task::spawn_local(serve(stream, Rc::clone(&script)));
    }
}

async fn serve<F: Fn(&Asked) -> Vec<Say>>(mut stream: TcpStream, script: Rc<F>) {
    let mut inbox = Vec::new();
    while let Some(asked) = read_request(&mut stream, &mut inbox).await {
        for say in script(&asked) {
            let written = match say {
                Say::Bytes(bytes) => stream.write_all(&bytes).await,
                Say::Pieces(bytes, size) => write_pieces(&mut stream, &bytes, size).await,
                Say::Pause(time) => {
                    tokio::time::sleep(time).await;
                    Ok(())
                }
                Say::Fin => return,
                Say::Reset => {
                    stream.set_zero_linger().unwrap();
                    return;
                }
                Say::Hang => {
                    while stream.read(&mut [0; 1024]).await.is_ok_and(|n| n > 0) {}
                    return;
                }
            };
            if written.is_err() {
                return;
            }
        }
    }
}

async fn write_pieces(stream: &mut TcpStream, bytes: &[u8], size: usize) -> std::io::Result<()> {
    for piece in bytes.chunks(size) {
        stream.write_all(piece).await?;
        // Gives the client's thread a chance to see this piece alone; whether it does is not assumed.
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn read_request(stream: &mut TcpStream, inbox: &mut Vec<u8>) -> Option<Asked> {
    let head_end = loop {
        match inbox.windows(4).position(|w| w == b"\r\n\r\n") {
            Some(at) => break at + 4,
            None if stream.read_buf(inbox).await.ok()? == 0 => return None,
            None => {}
        }
    };
    let head = String::from_utf8_lossy(&inbox[..head_end]).into_owned();
    let line = head.lines().next().unwrap_or_default();
    let line = line.trim_end_matches(" HTTP/1.1").to_owned();
    let mut asked = Asked {
        line,
        head,
        body: String::new(),
    };
    let length: usize = asked
        .header("content-length")
        .map_or(0, |n| n.parse().unwrap());
    while inbox.len() < head_end + length {
        if stream.read_buf(inbox).await.ok()? == 0 {
            return None;
        }
    }
    asked.body = String::from_utf8_lossy(&inbox[head_end..head_end + length]).into_owned();
    inbox.drain(..head_end + length);
    Some(asked)
}

/// A whole answer with a body of known length.
pub(crate) fn whole(status: u16, content_type: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} Because\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub(crate) fn json(status: u16, body: &str) -> Vec<u8> {
    whole(status, "application/json", body)
}

/// The head of a stream with chunked framing.
pub(crate) const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

/// The end of a stream with chunked framing.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// One event as an HTTP chunk.
pub(crate) fn chunk(data: &str) -> Vec<u8> {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}

/// One token of a completion.
pub(crate) fn token(text: &str) -> Vec<u8> {
    chunk(&format!(r#"{{"choices":[{{"index":0,"text":"{text}"}}]}}"#))
}

/// The end of a completion of `tokens` tokens: finish reason, usage, `[DONE]`.
pub(crate) fn ending(tokens: u64) -> Vec<u8> {
    let finish = r#"{"choices":[{"index":0,"text":"","finish_reason":"length"}]}"#;
    let usage =
        format!(r#"{{"choices":[],"usage":{{"prompt_tokens":4,"completion_tokens":{tokens}}}}}"#);
    [chunk(finish), chunk(&usage), chunk("[DONE]")].concat()
}

/// The events of a good completion of `tokens` tokens.
pub(crate) fn good(tokens: u64) -> Vec<u8> {
    let mut events: Vec<u8> = (0..tokens).flat_map(|_| token("x")).collect();
    events.extend(ending(tokens));
    events
}

/// The events of a good chat of one token.
fn good_chat() -> Vec<u8> {
    let content = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"x"}}]}"#;
    [chunk(content), ending(1)].concat()
}

/// `events` as a whole answer.
pub(crate) fn stream(events: &[u8]) -> Vec<u8> {
    [STREAM_HEAD, events, LAST_CHUNK].concat()
}
