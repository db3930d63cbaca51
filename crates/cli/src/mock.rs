//! `linktax mock`: the built-in server on its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use linktax_mockserver::{MockConfig, MockServer, Mode};

use crate::exit::Exit;
use crate::number::{number, whole, whole32};
use crate::{affinity, output};

/// Who decides when a token comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ModeArg {
    /// Each request has its own clock.
    PerRequest,
    /// One engine loop whose steps all running requests share.
    Engine,
}

const EXAMPLES: &str = "\
Examples:
  linktax mock --port 8000 --ttft-ms 50 --step-ms 10
  linktax mock --port 8000 --mode engine --prefill-us-per-token 50 \\
      --max-batched-tokens 0
      a long prompt stalls the other streams, as without chunked prefill
  linktax mock --config faults.toml
      every knob, faults included (see docs/guide/mock-server.md)";

/// Arguments of `linktax mock`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MockArgs {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    host: std::net::IpAddr,
    /// Port to listen on; 0 takes a free one, which is printed.
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Settings (TOML); the flags below win.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Who decides when a token comes.
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
    /// Per-request mode: milliseconds from the last request byte to the first token.
    #[arg(long, value_name = "MS", value_parser = number)]
    ttft_ms: Option<f64>,
    /// Milliseconds between token steps.
    #[arg(long, value_name = "MS", value_parser = number)]
    step_ms: Option<f64>,
    /// Microseconds to prefill a prompt token that is not cached.
    #[arg(long, value_name = "US", value_parser = number)]
    prefill_us_per_token: Option<f64>,
    /// Engine mode: most tokens in a step; 0 does not chunk prefills.
    #[arg(long, value_name = "N", value_parser = whole::<0, 1_000_000_000>)]
    max_batched_tokens: Option<u64>,
    /// Engine mode: most requests that run at once.
    #[arg(long, value_name = "N", value_parser = whole32::<1, 1_000_000>)]
    max_num_seqs: Option<u32>,
    /// Tokens a chunk, a number or a cycle such as 3,4,4,2.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = whole::<1, 1_000_000>)]
    tokens_per_chunk: Option<Vec<u64>>,
    /// Model name.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Put the send time (CLOCK_MONOTONIC, ns) into the chunks instead of words.
    #[arg(long)]
    stamp: bool,
    /// Run on this CPU only.
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
}

/// Reads a file of mock server settings.
pub(crate) fn read_config(path: &Path) -> anyhow::Result<MockConfig> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(MockConfig::from_toml(&text, path)?)
}

/// Runs the server until Ctrl-C.
pub(crate) fn run(args: &MockArgs) -> anyhow::Result<Exit> {
    if let Some(cpu) = args.cpu {
        affinity::pin(&[cpu])?;
    }
    let config = config(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let address = SocketAddr::new(args.host, args.port);
        let server = MockServer::bind(config, address).await?;
        output::print(&format!("listening on http://{}", server.addr()))?;
        server
            .run_until(async {
                // Without a signal handler the server still ends with the process.
                let _ = tokio::signal::ctrl_c().await;
            })
            .await?;
        Ok(Exit::Clean)
    })
}

fn config(args: &MockArgs) -> anyhow::Result<MockConfig> {
    let mut config = match &args.config {
        Some(path) => read_config(path)?,
        None => MockConfig::default(),
    };
    let set = |to: &mut f64, from: Option<f64>| {
        if let Some(value) = from {
            *to = value;
        }
    };
    set(&mut config.ttft_ms, args.ttft_ms);
    set(&mut config.step_ms, args.step_ms);
    set(&mut config.prefill_us_per_token, args.prefill_us_per_token);
    if let Some(mode) = args.mode {
        config.mode = match mode {
            ModeArg::PerRequest => Mode::PerRequest,
            ModeArg::Engine => Mode::Engine,
        };
    }
    if let Some(n) = args.max_batched_tokens {
        config.max_batched_tokens = n;
    }
    if let Some(n) = args.max_num_seqs {
        config.max_num_seqs = n as usize;
    }
    if let Some(cycle) = &args.tokens_per_chunk {
        config.tokens_per_chunk.clone_from(cycle);
    }
    if let Some(model) = &args.model {
        config.model.clone_from(model);
    }
    config.stamp |= args.stamp;
    config.validate()?;
    Ok(config)
}
