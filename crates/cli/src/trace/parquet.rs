//! `--parquet DIR` of `linktax trace`: the figures as tables for pandas, DuckDB and polars.

use std::path::PathBuf;

use clap::Args;

use super::chosen::Chosen;
use super::session::Session;

#[cfg(feature = "report")]
mod tables;

/// Where tables go.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ParquetArgs {
    /// Also write steps.parquet, collectives.parquet and kernel_classes.parquet there.
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
}

impl ParquetArgs {
    /// Makes the directory, before minutes of reading.
    #[cfg(feature = "report")]
    pub(crate) fn prepare(&self) -> anyhow::Result<()> {
        use anyhow::Context;
        match &self.parquet {
            Some(dir) => std::fs::create_dir_all(dir)
                .with_context(|| format!("{}: cannot make the directory", dir.display())),
            None => Ok(()),
        }
    }

    /// Says how to get a binary that can.
    #[cfg(not(feature = "report"))]
    pub(crate) fn prepare(&self) -> anyhow::Result<()> {
        match &self.parquet {
            Some(_) => anyhow::bail!(
                "--parquet: this build has no Parquet export; build with the feature `report` (cargo build --release) or use --json"
            ),
            None => Ok(()),
        }
    }

    /// Writes the tables, if they were asked for, and says where on stderr.
    #[cfg(feature = "report")]
    pub(crate) fn write(&self, session: &Session, chosen: &Chosen) -> anyhow::Result<()> {
        let Some(dir) = &self.parquet else {
            return Ok(());
        };
        let all = [
            ("steps", tables::steps(session, chosen)),
            ("collectives", tables::collectives(session, chosen)),
            ("kernel_classes", tables::kernel_classes(session, chosen)),
        ];
        for (name, table) in all {
            let path = dir.join(format!("{name}.parquet"));
            table.write_parquet(&path)?;
            crate::output::note(&format!("{}", path.display()));
        }
        Ok(())
    }

    /// Nothing: [`Self::prepare`] has refused.
    #[cfg(not(feature = "report"))]
    pub(crate) fn write(&self, _session: &Session, _chosen: &Chosen) -> anyhow::Result<()> {
        Ok(())
    }
}
