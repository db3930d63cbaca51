//! `linktax export`: a run directory as Parquet or CSV.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::exit::Exit;

/// File format of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    /// Columnar, typed, compressed: for pandas, DuckDB, polars.
    Parquet,
    /// Text.
    Csv,
}

const EXAMPLES: &str = "\
Examples:
  linktax export runs/nvlink
  linktax export runs/nvlink --format csv --out /tmp/nvlink";

/// Arguments of `linktax export`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// Run directory.
    pub(crate) dir: PathBuf,
    /// Format of the files requests.* (one row a request) and events.* (one row a read).
    #[arg(long, value_enum, default_value = "parquet")]
    pub(crate) format: FormatArg,
    /// Where to put them [default: the run directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Runs the command.
#[cfg(feature = "report")]
pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<Exit> {
    use linktax_store::export::{Format, export};
    let reader = linktax_store::RunReader::open(&args.dir)?;
    let out = args.out.as_deref().unwrap_or(&args.dir);
    let format = match args.format {
        FormatArg::Parquet => Format::Parquet,
        FormatArg::Csv => Format::Csv,
    };
    for path in export(&reader, out, format)? {
        crate::output::print(&path.display().to_string())?;
    }
    Ok(Exit::Clean)
}

/// Says how to get a binary that can.
#[cfg(not(feature = "report"))]
pub(crate) fn run(_args: &ExportArgs) -> anyhow::Result<Exit> {
    anyhow::bail!(
        "this is the lean build, without Parquet and CSV export; build with the feature `report` \
         (cargo build --release) or read requests.jsonl directly"
    )
}
