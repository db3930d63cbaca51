use std::fs::{self, File};
use std::path::{Path, PathBuf};

use polars::error::{PolarsError, PolarsResult};
use polars::frame::DataFrame;
use polars::prelude::{Column, NamedFrom, Series};
use polars_io::SerWriter;
use polars_io::csv::write::{BatchedWriter as CsvBatches, CsvWriter};
use polars_io::parquet::write::{BatchedWriter as ParquetBatches, ParquetWriter};

use super::Format;
use crate::StoreError;

/// Rows collected column by column until they make a batch.
pub(super) trait Rows: Default {
    /// Rows a batch.
    const BATCH: usize;

    fn len(&self) -> usize;

    fn into_frame(self) -> PolarsResult<DataFrame>;
}

/// One column of a batch.
pub(super) fn column<T, Kind: ?Sized>(name: &'static str, values: T) -> Column
where
    Series: NamedFrom<T, Kind>,
{
    Series::new(name.into(), values).into()
}

enum Sink {
    Parquet(Box<ParquetBatches<File>>),
    Csv(Box<CsvBatches<File>>),
}

/// A table that is written batch by batch into a temporary file, and named when it is whole.
pub(super) struct Table<R> {
    rows: R,
    sink: Sink,
    temp: PathBuf,
    path: PathBuf,
}

impl<R: Rows> Table<R> {
    pub(super) fn create(dir: &Path, name: &str, format: Format) -> Result<Self, StoreError> {
        let file_name = format!("{name}.{}", format.extension());
        let path = dir.join(&file_name);
        let temp = dir.join(format!(".{file_name}.tmp"));
        let file = File::create(&temp).map_err(StoreError::io("create the file", &temp))?;
        // The columns' kinds, from a batch without rows: a table without rows has them too.
        let sink = R::default()
            .into_frame()
            .and_then(|empty| Sink::new(file, &empty, format))
            .map_err(table_error(&path))?;
        Ok(Table {
            rows: R::default(),
            sink,
            temp,
            path,
        })
    }

    /// The batch under way.
    pub(super) fn rows(&mut self) -> &mut R {
        &mut self.rows
    }

    pub(super) fn flush_if_full(&mut self) -> Result<(), StoreError> {
        if self.rows.len() < R::BATCH {
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let rows = std::mem::take(&mut self.rows);
        rows.into_frame()
            .and_then(|frame| self.sink.write(&frame))
            .map_err(table_error(&self.path))
    }

    pub(super) fn finish(mut self) -> Result<PathBuf, StoreError> {
        if self.rows.len() > 0 {
            self.flush()?;
        }
        self.sink.finish().map_err(table_error(&self.path))?;
        fs::rename(&self.temp, &self.path)
            .map_err(StoreError::io("name the finished file", &self.path))?;
        Ok(self.path)
    }
}

impl Sink {
    fn new(file: File, empty: &DataFrame, format: Format) -> PolarsResult<Sink> {
        let schema = empty.schema();
        Ok(match format {
            Format::Parquet => Sink::Parquet(Box::new(ParquetWriter::new(file).batched(schema)?)),
            Format::Csv => Sink::Csv(Box::new(CsvWriter::new(file).batched(schema)?)),
        })
    }

    /// The frame was just made of whole columns, so it is one chunk, hence one row group.
    fn write(&mut self, frame: &DataFrame) -> PolarsResult<()> {
        match self {
            Sink::Parquet(out) => out.write_batch(frame),
            Sink::Csv(out) => out.write_batch(frame),
        }
    }

    fn finish(&mut self) -> PolarsResult<()> {
        match self {
            Sink::Parquet(out) => out.finish().map(|_size| ()),
            Sink::Csv(out) => out.finish(),
        }
    }
}

fn table_error(path: &Path) -> impl FnOnce(PolarsError) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Table { path, source }
}
