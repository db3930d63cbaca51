//! Where requests go: a parsed base URL.

use std::fmt;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request};
use tokio::net::TcpStream;

use crate::LoadError;

/// One `--base-url`, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    tls: bool,
    host: String,
    port: u16,
    prefix: String,
}

impl Target {
    /// Parses `http://host:port[/prefix]`. A trailing `/v1` is accepted and dropped, since both ways of
    /// writing the base URL are common.
    pub fn parse(url: &str) -> Result<Self, LoadError> {
        let fail = |reason: &str| LoadError::BaseUrl {
            // Credentials are not quoted.
            url: match url.rsplit_once('@') {
                Some((_, rest)) => format!("…@{rest}"),
                None => url.to_owned(),
            },
            reason: reason.to_owned(),
        };
        let parsed: reqwest::Url = url.parse().map_err(|e| {
            fail(&format!(
                "{e}; expected something like http://127.0.0.1:8000"
            ))
        })?;
        let tls = match parsed.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(fail("only http:// and https:// are supported")),
        };
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(fail(
                "credentials in the URL would end up in files; use --api-key-env or --header",
            ));
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(fail("a base URL has no query and no fragment"));
        }
        let host = parsed.host_str().ok_or_else(|| fail("no host in it"))?;
        let port = parsed
            .port_or_known_default()
            .ok_or_else(|| fail("no port in it"))?;
        let path = parsed.path().trim_end_matches('/');
        let prefix = path.strip_suffix("/v1").unwrap_or(path);
        Ok(Target {
            tls,
            host: host.to_owned(),
            port,
            prefix: prefix.to_owned(),
        })
    }

    /// Whether requests go over TLS.
    pub(crate) fn tls(&self) -> bool {
        self.tls
    }

    /// Host name or address, without the brackets of an IPv6 literal.
    pub(crate) fn bare_host(&self) -> &str {
        self.host.trim_matches(['[', ']'])
    }

    /// The `Host` header.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Sets the `Host` header, unless the user gave one.
    pub(crate) fn name_host(&self, headers: &mut HeaderMap) {
        if !headers.contains_key(header::HOST)
            && let Ok(host) = HeaderValue::from_str(&self.authority())
        {
            headers.insert(header::HOST, host);
        }
    }

    /// The path of an API endpoint under this base URL.
    pub(crate) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// The full URL of an API endpoint under this base URL.
    pub fn url(&self, path: &str) -> String {
        format!("{self}{path}")
    }

    /// A POST of `body` to an API path, with these headers and the `Host` of this target.
    pub(crate) fn post(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        // The path was checked with the base URL; a default stands in for what cannot happen.
        *request.uri_mut() = self.path(path).parse().unwrap_or_default();
        request.headers_mut().clone_from(headers);
        self.name_host(request.headers_mut());
        request
    }

    /// Opens a TCP connection; tries every address the name has, in order.
    pub(crate) async fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect((self.bare_host(), self.port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}{}", self.host, self.port, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_the_base_url_name_the_same_endpoint() {
        for url in [
            "http://localhost:8000",
            "http://localhost:8000/",
            "http://localhost:8000/v1",
            "http://localhost:8000/v1/",
        ] {
            let t = Target::parse(url).unwrap();
            assert_eq!(t.url("/v1/models"), "http://localhost:8000/v1/models");
        }
        let t = Target::parse("https://gw.example/llm/v1").unwrap();
        assert_eq!(t.url("/v1/models"), "https://gw.example:443/llm/v1/models");
        assert_eq!(t.path("/v1/models"), "/llm/v1/models");
        let t = Target::parse("http://[::1]:8000").unwrap();
        assert_eq!(
            (t.bare_host(), t.authority().as_str()),
            ("::1", "[::1]:8000")
        );
    }

    #[test]
    fn unusable_urls_say_what_is_expected() {
        for (url, word) in [
            ("localhost:8000", "only http://"),
            ("127.0.0.1:8000", "expected something like"),
            ("ftp://x", "only http://"),
            ("http://user:pw@x", "--api-key-env"),
            ("http://x/?a=1", "no query"),
        ] {
            let message = Target::parse(url).unwrap_err().to_string();
            assert!(message.contains(word), "{url}: {message}");
        }
    }
}
