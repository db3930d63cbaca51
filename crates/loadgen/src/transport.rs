//! Connections whose every socket read is stamped.
//!
//! `reqwest` hides the socket, opens connections when it pleases and may send a request again on a second
//! connection. The measured path therefore drives hyper's HTTP/1.1 connection itself
//! (see `docs/adr/0001-measured-path.md`): connections are opened before the clock of a request starts, nothing
//! is ever retried, and one monotonic timestamp is taken when a read of the socket returns, before anything
//! looks at the bytes.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use linktax_records::Nanos;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::clock::{Clock, Monotonic};
use crate::target::Target;

/// When the last read of a socket returned, and how many there were.
#[derive(Debug, Default)]
pub(crate) struct ReadStamp {
    at: Cell<Nanos>,
    count: Cell<u64>,
}

impl ReadStamp {
    /// Time of the last read that returned bytes.
    pub(crate) fn at(&self) -> Nanos {
        self.at.get()
    }

    /// Reads that returned bytes since the connection was opened.
    pub(crate) fn count(&self) -> u64 {
        self.count.get()
    }
}

/// A TCP stream that notes the time of every read.
pub(crate) struct Stamped {
    inner: TcpStream,
    stamp: Rc<ReadStamp>,
}

impl AsyncRead for Stamped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = result
            && buf.filled().len() > before
        {
            self.stamp.at.set(Monotonic.now());
            self.stamp.count.set(self.stamp.count.get() + 1);
        }
        result
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

type Body = Full<Bytes>;

/// The half of a connection that must be polled for anything to move.
pub(crate) enum Driver {
    Plain(Box<http1::Connection<TokioIo<Stamped>, Body>>),
    Tls(Box<http1::Connection<TokioIo<TlsStream<Stamped>>, Body>>),
}

impl Driver {
    /// Moves bytes in both directions. Ready when the connection is over.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        match self {
            Driver::Plain(c) => Pin::new(c).poll(cx),
            Driver::Tls(c) => Pin::new(c).poll(cx),
        }
    }
}

/// An open HTTP/1.1 connection with at most one request on it.
pub(crate) struct Connection {
    pub(crate) sender: http1::SendRequest<Body>,
    pub(crate) driver: Driver,
    pub(crate) stamp: Rc<ReadStamp>,
    /// When it was opened or last gave back an answer.
    pub(crate) idle_since: Nanos,
}

impl Connection {
    /// Connects, with TLS where the target asks for it, and shakes hands.
    pub(crate) async fn open(target: &Target, tls: &Tls) -> io::Result<Connection> {
        let stamp = Rc::new(ReadStamp::default());
        let inner = target.connect().await?;
        let io = Stamped {
            inner,
            stamp: Rc::clone(&stamp),
        };
        let (sender, driver) = if target.tls() {
            let name = ServerName::try_from(target.bare_host().to_owned())
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
            let stream = tls.connector()?.connect(name, io).await?;
            let (s, c) = http1::handshake(TokioIo::new(stream))
                .await
                .map_err(io::Error::other)?;
            (s, Driver::Tls(Box::new(c)))
        } else {
            let (s, c) = http1::handshake(TokioIo::new(io))
                .await
                .map_err(io::Error::other)?;
            (s, Driver::Plain(Box::new(c)))
        };
        Ok(Connection {
            sender,
            driver,
            stamp,
            idle_since: Monotonic.now(),
        })
    }

    /// Whether a request can be sent now: not closed by the server while it was idle.
    pub(crate) async fn is_usable(&mut self) -> bool {
        std::future::poll_fn(|cx| {
            let over = self.driver.poll(cx).is_ready();
            Poll::Ready(!over && self.sender.is_ready())
        })
        .await
    }
}

/// The TLS client set-up, made once a run.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    config: Option<Arc<rustls::ClientConfig>>,
}

impl Tls {
    /// The set-up that these targets need: none where all of them speak plain HTTP.
    pub(crate) fn for_targets(targets: &[Target], insecure: bool) -> Result<Tls, crate::LoadError> {
        if targets.iter().any(Target::tls) {
            Tls::new(insecure)
        } else {
            Ok(Tls::default())
        }
    }

    /// A set-up that trusts what the operating system trusts; with `insecure`, anybody.
    fn new(insecure: bool) -> Result<Tls, crate::LoadError> {
        use rustls_platform_verifier::BuilderVerifierExt;
        let fail = |e: rustls::Error| crate::LoadError::Tls(e.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // reqwest's control-plane client looks for the process default; a second install is harmless.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(fail)?;
        let config = if insecure {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
                .with_no_client_auth()
        } else {
            builder
                .with_platform_verifier()
                .map_err(fail)?
                .with_no_client_auth()
        };
        Ok(Tls {
            config: Some(Arc::new(config)),
        })
    }

    fn connector(&self) -> io::Result<TlsConnector> {
        let config = self
            .config
            .as_ref()
            .ok_or_else(|| io::Error::other("TLS is not set up"))?;
        Ok(TlsConnector::from(Arc::clone(config)))
    }
}

/// `--insecure`: signatures are still checked, the certificate's name and issuer are not.
#[derive(Debug)]
struct AcceptAny(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &rustls::pki_types::CertificateDer<'_>,
        _intermediates: &[rustls::pki_types::CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
