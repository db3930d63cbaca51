use std::convert::Infallible;

use crate::RequestRecord;

/// Records that can be visited again and again, one at a time, without holding them all in memory.
///
/// Implemented for slices here and for the records of a cell on disk in the `store` crate, so that a
/// ten-minute cell is summarised in bounded memory.
pub trait RecordSource {
    /// What can go wrong while reading.
    type Error;

    /// Calls `visit` for every record, in the order in which they ended.
    fn scan(&self, visit: &mut dyn FnMut(&RequestRecord)) -> Result<(), Self::Error>;
}

impl RecordSource for [RequestRecord] {
    type Error = Infallible;

    fn scan(&self, visit: &mut dyn FnMut(&RequestRecord)) -> Result<(), Infallible> {
        self.iter().for_each(visit);
        Ok(())
    }
}

impl RecordSource for Vec<RequestRecord> {
    type Error = Infallible;

    fn scan(&self, visit: &mut dyn FnMut(&RequestRecord)) -> Result<(), Infallible> {
        self.as_slice().scan(visit)
    }
}
