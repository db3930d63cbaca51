//! What of an export is harmless. Everything that is not named here stays behind.

use crate::ingest::quoted;

/// Columns that hold kernel names: ids, or the names themselves in some exports.
pub(super) const NAMES: [&str; 3] = ["demangledName", "shortName", "mangledName"];

/// Tables of numbers, apart from the families known by prefix.
const NUMBERS: [&str; 7] = [
    "PROFILER_OVERHEAD",
    "ANALYSIS_DETAILS",
    "TARGET_INFO_CUDA_DEVICE",
    "TARGET_INFO_CUDA_CONTEXT_INFO",
    "TARGET_INFO_CUDA_STREAM",
    "TARGET_INFO_SESSION_START_TIME",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
];

/// Keys of the export's metadata that say nothing about the machine or the person.
const EXPORT_KEYS: &str = "WHERE (name LIKE 'EXPORT!_PRODUCT!_%' ESCAPE '!' OR name LIKE 'EXPORT!_SCHEMA!_%' ESCAPE '!'
    OR name IN ('EXPORT_PARAM_LAZY', 'EXPORT_PARAM_TIME_SHIFT', 'EXPORT_PARAM_TIME_NORMALIZE', 'EXPORT_PARAM_INCLUDE_JSON',
        'EXPORT_PARAM_INCLUDE_BLOBS', 'EXPORT_PARAM_TABLES_TO_EXPORT', 'EXPORT_PARAM_TIMES_TO_EXPORT', 'DERIVED_WINDOW_NS'))
    AND value NOT GLOB '*[^0-9A-Za-z., _-]*'";

/// Switches of the capture that matter here, of any process, and only if they are on, off, a number or a mode.
const CAPTURE_KEYS: &str = "WHERE ltrim(replace(name, 'PROCESS_', ''), '0123456789:') IN ('CUDA_GRAPH_TRACE_OPTIONS:MODE',
        'CUDA_GRAPH_TRACE_OPTIONS:TRACE_DEVICE_GRAPH_LAUNCH', 'COLLECT_CUDA_TRACE', 'COLLECT_NVTX_TRACE',
        'COLLECT_GPU_MEMORY_USAGE', 'COLLECT_CPU_TRACE', 'CUDA_FLUSH_PERIODICALLY', 'CUDA_FLUSH_PERIOD',
        'CUDA_SKIP_SOME_API_CALLS', 'CUDA_FLUSH_ON_CUDA_PROFILER_STOP')
    AND name NOT GLOB '*[^0-9A-Z_:]*'
    AND (value IN ('true', 'false', 'Graph', 'Node') OR (value <> '' AND value NOT GLOB '*[^0-9]*'))";

const DRIVER: &str = "WHERE name = 'NvDriverVersion' AND value NOT GLOB '*[^0-9.]*'";

/// What is kept of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Numbers, and the names of kernels.
    Numbers,
    /// Numbers, and texts that mark steps.
    Marks,
    /// Ids and their words, as the exporter ships them.
    Enum,
    /// Numbers and the model of the GPU.
    Gpu,
    /// Numbers and the bare program name.
    Processes,
    /// Numbers and messages of the profiler that are known, without paths.
    Diagnostics,
    /// Names and values that pass a filter.
    Keys(&'static str),
}

/// The policy for a table; `None` leaves it out.
pub(super) fn of(table: &str) -> Option<Keep> {
    Some(match table {
        _ if table.starts_with("CUPTI_ACTIVITY_KIND_") || table.starts_with("CUDA_GRAPH_") => {
            Keep::Numbers
        }
        _ if NUMBERS.contains(&table) => Keep::Numbers,
        _ if is_nvtx(table) => Keep::Marks,
        _ if table.starts_with("ENUM_") => Keep::Enum,
        "TARGET_INFO_GPU" => Keep::Gpu,
        "PROCESSES" => Keep::Processes,
        "DIAGNOSTIC_EVENT" => Keep::Diagnostics,
        "META_DATA_EXPORT" => Keep::Keys(EXPORT_KEYS),
        "META_DATA_CAPTURE" => Keep::Keys(CAPTURE_KEYS),
        "TARGET_INFO_SYSTEM_ENV" => Keep::Keys(DRIVER),
        _ => return None,
    })
}

/// `NVTX_EVENTS` and its versioned forms.
pub(super) fn is_nvtx(table: &str) -> bool {
    table == "NVTX_EVENTS" || table.starts_with("NVTX_EVENTS_V")
}

impl Keep {
    /// The expression for a column whose text is kept; `None` for one of which only numbers pass.
    pub(super) fn text(self, column: &str) -> Option<String> {
        let name = quoted(column);
        match self {
            Keep::Numbers if NAMES.contains(&column) => Some(name),
            Keep::Marks if column == "text" => Some(format!(
                "iif({name} IN (SELECT text FROM temp.harmless), {name}, NULL)"
            )),
            // Words of an enumeration, never sentences or paths.
            Keep::Enum if ["name", "label"].contains(&column) => Some(format!(
                "iif(length({name}) <= 80 AND {name} NOT GLOB '*[^0-9A-Za-z_ ().,:+-]*', {name}, NULL)"
            )),
            Keep::Gpu if ["name", "chipName"].contains(&column) => Some(format!(
                "iif({name} NOT GLOB '*[^0-9A-Za-z_ ().-]*', {name}, NULL)"
            )),
            Keep::Processes if column == "name" => Some(program(&name)),
            Keep::Keys(_) if ["name", "value"].contains(&column) => Some(name),
            _ => None,
        }
    }

    /// Which rows are kept.
    pub(super) fn filter(self) -> &'static str {
        match self {
            Keep::Keys(filter) => filter,
            _ => "",
        }
    }

    /// Why rows are missing.
    pub(super) fn why(self) -> &'static str {
        match self {
            Keep::Keys(_) => "environment, command line, host, user or path",
            _ => "not needed",
        }
    }
}

/// What engines and NVIDIA's tools call a process stays; a command line or path does not.
fn program(column: &str) -> String {
    format!(
        "iif({column} NOT GLOB '*[^0-9A-Za-z_:.-]*' AND (lower({column}) GLOB 'vllm*' OR lower({column}) GLOB 'python*' \
         OR lower({column}) GLOB 'sglang*' OR lower({column}) GLOB 'pt_main*' OR lower({column}) GLOB 'trtllm*'), \
         substr({column}, 1, 15), NULL)"
    )
}

/// Messages of nsys that hold nothing but counts.
pub(super) fn known_diagnostic(text: &str) -> bool {
    const KNOWN: [&str; 10] = [
        "CUDA profiling might",
        "No CUDA events",
        "No NVTX events",
        "Not all CUDA events",
        "Not all NVTX events",
        "Number of CUDA events",
        "Number of CUPTI events",
        "Number of NVTX events",
        "Profiling ",
        "Timeout while waiting",
    ];
    let plain = !text.contains(['/', '\\', '=', '@']);
    plain && text.len() < 200 && KNOWN.iter().any(|known| text.starts_with(known))
}
