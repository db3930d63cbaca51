//! From an operation to the call that launched it.

use crate::{Launch, Process};

/// The launch calls of one process by correlation id. Ids are unique within a process only, so there is one index a
/// process.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaunchIndex<'a> {
    launches: &'a [Launch],
    by_corr: Vec<(u32, u32)>,
}

impl<'a> LaunchIndex<'a> {
    pub(crate) fn new(process: Option<&'a Process>) -> Self {
        let launches = process.map_or(&[][..], |p| p.launches.as_slice());
        let mut by_corr: Vec<(u32, u32)> = (0..)
            .zip(launches)
            .filter(|(_, launch)| launch.corr != 0)
            .map(|(at, launch)| (launch.corr, at))
            .collect();
        by_corr.sort_unstable();
        // A later profiling session of the same process may use an id again; the first call keeps it.
        by_corr.dedup_by_key(|(corr, _)| *corr);
        LaunchIndex { launches, by_corr }
    }

    /// All calls, in the order of their start.
    pub(crate) fn launches(&self) -> &'a [Launch] {
        self.launches
    }

    /// Position of the call with this correlation id. `hint` is where the last look-up ended: operations follow their
    /// launches nearly in order, so the next one is nearly always there.
    pub(crate) fn position(&self, corr: u32, hint: &mut usize) -> Option<usize> {
        if corr == 0 {
            return None;
        }
        for at in [*hint, *hint + 1] {
            if let Some(&(found, launch)) = self.by_corr.get(at)
                && found == corr
            {
                *hint = at;
                return Some(launch as usize);
            }
        }
        let at = self
            .by_corr
            .binary_search_by_key(&corr, |&(found, _)| found)
            .ok()?;
        *hint = at;
        Some(self.by_corr[at].1 as usize)
    }

    /// The call with this correlation id.
    pub(crate) fn get(&self, corr: u32, hint: &mut usize) -> Option<&'a Launch> {
        self.launches.get(self.position(corr, hint)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LaunchKind;

    #[test]
    fn calls_are_found_in_and_out_of_order() {
        let launch = |corr, start| Launch {
            corr,
            start,
            dur: 1,
            tid: 1,
            kind: LaunchKind::Kernel,
        };
        let process = Process {
            file: 0,
            global_pid: 1 << 24,
            name: None,
            launches: vec![launch(9, 10), launch(3, 20), launch(0, 30), launch(9, 40)],
        };
        let index = LaunchIndex::new(Some(&process));
        let mut hint = 0;
        assert_eq!(index.get(3, &mut hint).map(|l| l.start), Some(20));
        assert_eq!(index.get(9, &mut hint).map(|l| l.start), Some(10));
        assert_eq!(index.get(3, &mut hint).map(|l| l.start), Some(20));
        assert_eq!(index.get(4, &mut hint), None);
        assert_eq!(index.get(0, &mut hint), None);
        assert_eq!(LaunchIndex::new(None).get(1, &mut hint), None);
    }
}
