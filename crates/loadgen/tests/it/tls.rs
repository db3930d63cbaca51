//! Over TLS, with a certificate that nobody vouches for.

use std::net::SocketAddr;
use std::sync::Arc;

use linktax_loadgen::{LoadPlan, Secrets};
use linktax_mockserver::MockConfig;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::harness::{closed, connections, plan, quick, refusal, run, sent, spawn};

/// Terminates TLS in front of `backend`, until the test's process ends.
fn front(backend: SocketAddr) -> String {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                client.set_nodelay(true).unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client that does not trust the certificate leaves during the handshake.
                    let Ok(mut client) = acceptor.accept(client).await else {
                        return;
                    };
                    let mut server = TcpStream::connect(backend).await.unwrap();
                    server.set_nodelay(true).unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
    });
    format!("https://localhost:{port}")
}

#[test]
fn insecure_takes_any_certificate() {
    let server = spawn(MockConfig {
        record_requests: true,
        ..quick()
    });
    let ran = run(LoadPlan {
        insecure: true,
        ..plan(front(server.addr()), closed(3, 12))
    });
    ran.assert_all_completed(12);
    for r in ran.measured() {
        assert_eq!(r.output_tokens(), 6);
        assert!(!r.reconnected);
    }
    assert_eq!(connections(&sent(&server.shutdown())).len(), 3);
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused() {
    let server = spawn(quick());
    let url = front(server.addr());
    let message = refusal(plan(url.as_str(), closed(1, 1)), &Secrets::default());
    assert!(message.contains(&url), "{message}");
    assert!(message.contains("certificate"), "{message}");
    assert!(message.contains("--insecure"), "{message}");
    assert_eq!(server.shutdown().requests, 0);
}
