//! Typed columns as a Parquet file, for results that are not runs.
//!
//! ```
//! use linktax_store::tables::TypedTable;
//!
//! # fn main() -> Result<(), linktax_store::StoreError> {
//! # let scratch = std::env::temp_dir().join(format!("linktax-tables-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&scratch).unwrap();
//! let path = scratch.join("steps.parquet");
//! TypedTable::default()
//!     .with("step", vec![0u32, 1])
//!     .with("dur_ns", vec![Some(8_200_000u64), None])
//!     .with("kind", vec!["decode", "mixed"])
//!     .write_parquet(&path)?;
//! # let _ = std::fs::remove_dir_all(&scratch);
//! # Ok(())
//! # }
//! ```

use std::fs::{self, File};
use std::path::Path;

use polars::error::{PolarsError, PolarsResult};
use polars::frame::DataFrame;
use polars::prelude::{Column, IdxCa, NamedFrom, Series};
use polars_io::parquet::write::ParquetWriter;

use crate::StoreError;

/// The values of one column; `None` is a null.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Values {
    /// 32-bit whole numbers.
    U32(Vec<Option<u32>>),
    /// 64-bit whole numbers.
    U64(Vec<Option<u64>>),
    /// 64-bit whole numbers with a sign.
    I64(Vec<Option<i64>>),
    /// Numbers.
    F64(Vec<Option<f64>>),
    /// Yes or no.
    Bool(Vec<Option<bool>>),
    /// Text.
    Text(Vec<Option<String>>),
    /// Text of which there are few different ones in many rows: the words, and for each row its place among them.
    Words(Vec<String>, Vec<Option<u32>>),
}

macro_rules! from_vectors {
    ($($variant:ident of $kind:ty;)+) => {$(
        impl From<Vec<$kind>> for Values {
            fn from(values: Vec<$kind>) -> Values {
                Values::$variant(values.into_iter().map(Some).collect())
            }
        }

        impl From<Vec<Option<$kind>>> for Values {
            fn from(values: Vec<Option<$kind>>) -> Values {
                Values::$variant(values)
            }
        }
    )+};
}

from_vectors! {
    U32 of u32;
    U64 of u64;
    I64 of i64;
    F64 of f64;
    Bool of bool;
    Text of String;
}

impl From<Vec<&str>> for Values {
    fn from(values: Vec<&str>) -> Values {
        Values::from(values.into_iter().map(str::to_owned).collect::<Vec<_>>())
    }
}

impl From<Vec<Option<&str>>> for Values {
    fn from(values: Vec<Option<&str>>) -> Values {
        let owned = values.into_iter().map(|v| v.map(str::to_owned));
        Values::Text(owned.collect())
    }
}

/// A table, column by column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypedTable {
    columns: Vec<(String, Values)>,
}

impl TypedTable {
    /// Adds a column. All columns must be of one length and of different names.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, values: impl Into<Values>) -> Self {
        self.columns.push((name.into(), values.into()));
        self
    }

    /// The columns in their order.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Values)> {
        self.columns
            .iter()
            .map(|(name, values)| (name.as_str(), values))
    }

    /// Writes it as Parquet, compressed with Zstandard. A file of that name is replaced at once when the new one is
    /// whole.
    ///
    /// # Errors
    ///
    /// Columns of different lengths or of one name, a place beyond the words, and a file that cannot be written.
    pub fn write_parquet(self, path: &Path) -> Result<(), StoreError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".tmp");
        let temp = path.with_file_name(name);
        // First: a path that cannot be written is told before the work of encoding.
        let file = File::create(&temp).map_err(StoreError::io("create the file", &temp))?;
        let result = self.write_to(file);
        if result.is_err() {
            // Half a table is of use to nobody.
            let _ = fs::remove_file(&temp);
        }
        result.map_err(|source| StoreError::Table {
            path: path.to_owned(),
            source,
        })?;
        fs::rename(&temp, path).map_err(StoreError::io("name the finished file", path))
    }

    fn write_to(self, file: File) -> Result<(), PolarsError> {
        let mut frame = self.into_frame()?;
        ParquetWriter::new(file).finish(&mut frame).map(|_size| ())
    }

    fn into_frame(self) -> PolarsResult<DataFrame> {
        let columns = self.columns.into_iter();
        let made: PolarsResult<Vec<Column>> =
            columns.map(|(name, values)| column(name, values)).collect();
        DataFrame::new_infer_height(made?)
    }
}

fn column(name: String, values: Values) -> PolarsResult<Column> {
    let name = name.into();
    let series = match values {
        Values::U32(values) => Series::new(name, values),
        Values::U64(values) => Series::new(name, values),
        Values::I64(values) => Series::new(name, values),
        Values::F64(values) => Series::new(name, values),
        Values::Bool(values) => Series::new(name, values),
        Values::Text(values) => Series::new(name, values),
        Values::Words(words, places) => {
            // The rows share the words: a million long names cost a million references.
            let places: IdxCa = places.into_iter().collect();
            Series::new(name, words).take(&places)?
        }
    };
    Ok(series.into())
}
