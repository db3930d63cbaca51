//! The strings of an export that are of use: kernel names, launch calls and step marks. All others are passed over.

use std::collections::HashMap;
use std::path::Path;

use sqlx::SqliteConnection;

use super::bulk;
use super::schema::Schema;
use crate::timeline::{LaunchKind, NameId, Names};
use crate::{TraceError, steps};

/// Strings by id.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    /// Values of the ids that were asked for.
    pub(crate) wanted: HashMap<i64, String>,
    /// API calls that put work on a GPU.
    pub(crate) launches: HashMap<i64, LaunchKind>,
    /// NVTX texts of use to the step finder.
    pub(crate) marks: HashMap<i64, String>,
}

impl Strings {
    /// One pass over `StringIds`; `wanted` has the ids to keep whatever they say.
    pub(crate) async fn read(
        connection: &mut SqliteConnection,
        path: &Path,
        schema: &Schema,
        wanted: impl Fn(i64) -> bool,
    ) -> Result<Self, TraceError> {
        let mut strings = Strings::default();
        let Some(table) = schema.table("StringIds") else {
            return Ok(strings);
        };
        let sql = table.select(&["id", "value"]);
        bulk::scan(connection, (path, table.name), &sql, |row| {
            let id = row.int(0);
            let Some(value) = row.text(1) else { return };
            if wanted(id) {
                strings.wanted.insert(id, value.to_owned());
            }
            if let Some(kind) = launch_kind(value) {
                strings.launches.insert(id, kind);
            } else if steps::is_step_mark(value) {
                strings.marks.insert(id, value.to_owned());
            }
        })
        .await?;
        Ok(strings)
    }
}

/// Which kind of launch an API call is, from its name with version suffix (`cudaGraphLaunch_v10000`).
pub(crate) fn launch_kind(call: &str) -> Option<LaunchKind> {
    if !call.starts_with("cu") {
        return None;
    }
    let versioned = call
        .rsplit_once("_v")
        .filter(|(_, version)| !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()));
    let call = versioned.map_or(call, |(name, _)| name);
    let call = ["_ptsz", "_ptds"]
        .iter()
        .find_map(|suffix| call.strip_suffix(suffix))
        .unwrap_or(call);
    Some(match call {
        "cudaGraphLaunch" | "cuGraphLaunch" => LaunchKind::Graph,
        "cudaLaunch" | "cuLaunch" | "cuLaunchGrid" | "cuLaunchGridAsync" => LaunchKind::Kernel,
        "cudaProfilerStart" | "cudaProfilerStop" | "cuProfilerStart" | "cuProfilerStop" => {
            LaunchKind::Profiler
        }
        _ if [
            "cudaLaunchKernel",
            "cuLaunchKernel",
            "cudaLaunchCooperative",
            "cuLaunchCooperative",
        ]
        .iter()
        .any(|kernel| call.starts_with(kernel)) =>
        {
            LaunchKind::Kernel
        }
        _ if ["cudaMemcpy", "cudaMemset", "cuMemcpy", "cuMemset"]
            .iter()
            .any(|memory| call.starts_with(memory)) =>
        {
            LaunchKind::Memory
        }
        _ => return None,
    })
}

/// Kernel names of one file while its rows are read: an id in order of first sight for every name that occurs.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// (full, short), as the rows have them.
    pub(crate) names: Vec<(Name, Name)>,
    /// Ids are small and dense in real exports.
    near: Vec<u32>,
    far: HashMap<i64, u32>,
    texts: HashMap<String, u32>,
}

/// A name as a row has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A reference into `StringIds`.
    Id(i64),
    /// The name itself.
    Text(String),
}

const NEAR: usize = 1 << 22;
const NONE: u32 = u32::MAX;

impl Seen {
    /// The id of a name that the row gives by reference.
    #[inline]
    pub(crate) fn by_id(&mut self, full: i64, short: impl FnOnce() -> Name) -> NameId {
        if let Some(&id) = usize::try_from(full).ok().and_then(|at| self.near.get(at))
            && id != NONE
        {
            return NameId(id);
        }
        self.first_sight(full, short)
    }

    #[cold]
    fn first_sight(&mut self, full: i64, short: impl FnOnce() -> Name) -> NameId {
        if let Some(&id) = self.far.get(&full) {
            return NameId(id);
        }
        let id = self.push(Name::Id(full), short());
        match usize::try_from(full) {
            Ok(at) if at < NEAR => {
                if self.near.len() <= at {
                    self.near.resize(at + 1, NONE);
                }
                self.near[at] = id;
            }
            _ => {
                self.far.insert(full, id);
            }
        }
        NameId(id)
    }

    /// The id of a name that the row spells out.
    pub(crate) fn by_text(&mut self, full: &str, short: impl FnOnce() -> Name) -> NameId {
        if let Some(&id) = self.texts.get(full) {
            return NameId(id);
        }
        let id = self.push(Name::Text(full.to_owned()), short());
        self.texts.insert(full.to_owned(), id);
        NameId(id)
    }

    fn push(&mut self, full: Name, short: Name) -> u32 {
        self.names.push((full, short));
        self.names.len() as u32 - 1
    }

    /// Whether a string is the name of a kernel that ran.
    pub(crate) fn wanted(&self) -> std::collections::HashSet<i64> {
        let ids = self.names.iter().flat_map(|(full, short)| [full, short]);
        ids.filter_map(|name| match name {
            Name::Id(id) => Some(*id),
            Name::Text(_) => None,
        })
        .collect()
    }

    /// (full, short) as text, and how many ids `StringIds` does not have.
    pub(crate) fn resolve(self, strings: &Strings) -> (Vec<(String, String)>, u64) {
        let mut unknown = 0;
        let text = |name: Name| match name {
            Name::Text(text) => Some(text),
            Name::Id(id) => strings.wanted.get(&id).cloned(),
        };
        let names = self
            .names
            .into_iter()
            .map(|(full, short)| {
                let id = match full {
                    Name::Id(id) => id,
                    Name::Text(_) => 0,
                };
                let short = text(short);
                let full = text(full).or_else(|| short.clone()).unwrap_or_else(|| {
                    unknown += 1;
                    format!("<no name for id {id}>")
                });
                let short = short
                    .filter(|short| !short.is_empty())
                    .unwrap_or_else(|| short_name(&full).to_owned());
                (full, short)
            })
            .collect();
        (names, unknown)
    }
}

/// The names of all files in one table, in the order of their text so that nothing depends on the order of rows, and
/// for each file the new id of each of its names.
pub(crate) fn merge(files: &[Vec<(String, String)>]) -> (Names, Vec<Vec<NameId>>) {
    let mut all: Vec<&(String, String)> = files.iter().flatten().collect();
    all.sort_unstable();
    all.dedup();
    let mut names = Names::default();
    for (full, short) in &all {
        names.push(full.as_str(), short.as_str());
    }
    let place = |name: &(String, String)| {
        let at = all.binary_search(&name).unwrap_or_default();
        NameId(at as u32)
    };
    let maps = files
        .iter()
        .map(|file| file.iter().map(place).collect())
        .collect();
    (names, maps)
}

/// The bare name of a demangled one: no return type, namespace, template arguments or parameters.
pub(crate) fn short_name(full: &str) -> &str {
    let mut depth = 0i32;
    let mut end = full.len();
    for (at, byte) in full.bytes().enumerate() {
        match byte {
            b'<' if depth == 0 && at > 0 && is_word(full.as_bytes()[at - 1]) => {
                end = at;
                break;
            }
            b'(' if depth == 0 && at > 0 && is_word(full.as_bytes()[at - 1]) => {
                end = at;
                break;
            }
            b'<' | b'(' => depth += 1,
            b'>' | b')' => depth -= 1,
            _ => {}
        }
    }
    let head = &full[..end];
    let start = head.rfind([':', ' ', '>', ')']).map_or(0, |at| at + 1);
    match &head[start..] {
        "" => full,
        short => short,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_calls_with_any_suffix() {
        let kinds = [
            ("cudaGraphLaunch_v10000", Some(LaunchKind::Graph)),
            ("cudaGraphLaunch_ptsz_v10000", Some(LaunchKind::Graph)),
            ("cudaLaunchKernelExC_v11060", Some(LaunchKind::Kernel)),
            ("cuLaunchKernelEx", Some(LaunchKind::Kernel)),
            ("cudaMemcpyAsync_v3020", Some(LaunchKind::Memory)),
            ("cudaProfilerStart_v4000", Some(LaunchKind::Profiler)),
            ("cudaGraphInstantiate_v10000", None),
            ("cudaEventQuery_v3020", None),
            ("cuda_kernel", None),
        ];
        for (call, kind) in kinds {
            assert_eq!(launch_kind(call), kind, "{call}");
        }
    }

    #[test]
    fn short_names_of_both_demanglers() {
        for (full, short) in [
            (
                "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData *)",
                "cross_device_reduce_1stage",
            ),
            ("void at::native::<unnamed>::fill<int>(int)", "fill"),
            (
                "void (anonymous namespace)::softmax<float>(float)",
                "softmax",
            ),
            ("nvjet_tst_128x64", "nvjet_tst_128x64"),
            (
                "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)",
                "ncclDevKernel_SendRecv",
            ),
        ] {
            assert_eq!(short_name(full), short);
        }
    }

    #[test]
    fn merged_names_do_not_depend_on_the_order_of_files() {
        let name = |full: &str| (full.to_owned(), full.to_owned());
        let (a, b) = (vec![name("z"), name("a")], vec![name("m"), name("z")]);
        let (names, maps) = merge(&[a.clone(), b.clone()]);
        assert_eq!(names, merge(&[b, a]).0);
        assert_eq!(names.len(), 3);
        assert_eq!(maps[0][0], maps[1][1]);
        assert_eq!(names.full(maps[0][0]), "z");
    }
}
