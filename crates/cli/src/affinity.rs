//! Keeping a process on some CPUs, so that client and mock server do not take turns on one.

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that this process may run on.
pub(crate) fn allowed() -> anyhow::Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("the allowed CPUs cannot be read")?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect())
}

/// Keeps the calling thread, and those it starts from now on, on these CPUs.
pub(crate) fn pin(cpus: &[usize]) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        ensure!(
            cpu < CpuSet::MAX_CPU,
            "CPU {cpu}: expected less than {}",
            CpuSet::MAX_CPU
        );
        set.set(cpu);
    }
    sched_setaffinity(None, &set).with_context(|| {
        let allowed = allowed().unwrap_or_default();
        format!("cannot run on CPUs {cpus:?}; allowed are {allowed:?}")
    })
}
