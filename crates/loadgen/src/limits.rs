//! Limits of the machine that would spoil a run later.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::LoadError;
use crate::plan::LoadPlan;

/// Descriptors beside the connections: files, epoll, control plane, standard streams.
const SPARE: u64 = 64;

/// Assumed connections of an open loop without a cap.
const UNCAPPED: u64 = 1024;

/// Makes sure that all connections of the largest cell fit, raising the soft limit if the hard one allows it.
pub(crate) fn ensure_open_files(plan: &LoadPlan, replicas: usize) -> Result<(), LoadError> {
    let streams = plan.max_in_flight().map_or(UNCAPPED, u64::from);
    let needed = streams * replicas as u64 + SPARE;
    let now = getrlimit(Resource::Nofile);
    let limit = now.current.unwrap_or(u64::MAX);
    if limit >= needed {
        return Ok(());
    }
    let hard = now.maximum.unwrap_or(u64::MAX);
    let wanted = Rlimit {
        current: Some(needed),
        maximum: now.maximum,
    };
    if hard >= needed && setrlimit(Resource::Nofile, wanted).is_ok() {
        return Ok(());
    }
    Err(LoadError::OpenFiles {
        limit,
        hard,
        needed,
    })
}
