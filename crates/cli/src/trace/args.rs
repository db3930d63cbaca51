//! Flags that several of the commands share.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use linktax_linkmodel::Model;
use linktax_trace::{StepKind, StepMethod};

use crate::number::whole32;

/// What to read, and how to class it.
#[derive(Clone, Debug, Args)]
pub(crate) struct InputArgs {
    /// Nsight Systems export: .sqlite, .sqlite.zst, .sqlite.gz or .nsys-rep; several are the nodes or ranks of one run.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) window: WindowArgs,
    #[command(flatten)]
    pub(crate) classes: ClassArgs,
    /// How many GPUs there must be; fewer is an error.
    #[arg(long, value_name = "N", value_parser = whole32::<1, 65_536>)]
    pub(crate) expect_gpus: Option<u32>,
}

/// Which part of the time.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WindowArgs {
    /// Only what runs after this time on the export's clock (155.2s, 800ms; a bare number is seconds).
    #[arg(long, value_name = "TIME", value_parser = time, allow_negative_numbers = true)]
    pub(crate) from: Option<i64>,
    /// Only what runs before this time.
    #[arg(long, value_name = "TIME", value_parser = time, allow_negative_numbers = true)]
    pub(crate) to: Option<i64>,
}

impl WindowArgs {
    /// The window to read; `None` for everything.
    pub(crate) fn span(&self) -> Option<(i64, i64)> {
        let any = self.from.is_some() || self.to.is_some();
        any.then(|| (self.from.unwrap_or(i64::MIN), self.to.unwrap_or(i64::MAX)))
    }
}

/// How kernels are classed.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ClassArgs {
    /// Rules of your own (TOML), tried before the built-in ones.
    #[arg(long, value_name = "RULES.toml")]
    pub(crate) rules: Option<PathBuf>,
    /// Count linear attention and state space (ssm) as attention.
    #[arg(long)]
    pub(crate) fold_ssm: bool,
    /// More than 2 % of kernel time without a class is an error.
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Which steps.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct StepArgs {
    /// Only steps of these kinds.
    #[arg(long, value_enum, value_name = "KIND,…", value_delimiter = ',')]
    pub(crate) steps: Vec<KindArg>,
    /// Leave out this many steps at both ends.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole32::<0, 1_000_000>)]
    pub(crate) steady: u32,
    /// Find steps by this method only [default: the first of them that works].
    #[arg(long, value_enum)]
    pub(crate) method: Option<MethodArg>,
}

impl StepArgs {
    /// The kinds to keep; all if empty.
    pub(crate) fn kinds(&self) -> Vec<StepKind> {
        match self.steps.contains(&KindArg::All) {
            true => Vec::new(),
            false => self.steps.iter().filter_map(|kind| kind.kind()).collect(),
        }
    }
}

/// A kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArg {
    /// Only decoding requests.
    Decode,
    /// Prefill chunks and decoding requests together.
    Mixed,
    /// Only prefill.
    Prefill,
    /// The passes of a draft model, cut off as steps of their own.
    Draft,
    /// Nothing to do.
    Idle,
    /// Not known.
    Unknown,
    /// Every kind.
    All,
}

impl KindArg {
    fn kind(self) -> Option<StepKind> {
        Some(match self {
            KindArg::Decode => StepKind::Decode,
            KindArg::Mixed => StepKind::Mixed,
            KindArg::Prefill => StepKind::Prefill,
            KindArg::Draft => StepKind::Draft,
            KindArg::Idle => StepKind::Idle,
            KindArg::Unknown => StepKind::Unknown,
            KindArg::All => return None,
        })
    }
}

/// A method of finding steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum MethodArg {
    /// NVTX marks of the engine, by launch.
    Nvtx,
    /// Launches of the model's CUDA graph.
    GraphLaunch,
    /// Kernels that run once a step.
    Anchor,
    /// The repeating sequence of kernels.
    Periodicity,
    /// Pauses of the GPU.
    Gap,
    /// The whole capture as one step.
    Whole,
}

impl From<MethodArg> for StepMethod {
    fn from(method: MethodArg) -> StepMethod {
        match method {
            MethodArg::Nvtx => StepMethod::Nvtx,
            MethodArg::GraphLaunch => StepMethod::GraphLaunch,
            MethodArg::Anchor => StepMethod::Anchor,
            MethodArg::Periodicity => StepMethod::Periodicity,
            MethodArg::Gap => StepMethod::Gap,
            MethodArg::Whole => StepMethod::Whole,
        }
    }
}

/// The model's shape, for message sizes and expected collectives.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ModelArgs {
    /// The model's config.json: message sizes, bus bandwidth, expected collectives.
    #[arg(long, value_name = "CONFIG.json")]
    pub(crate) model: Option<PathBuf>,
    /// Tensor-parallel ranks [default: the ranks that are traced].
    #[arg(long, value_name = "N", value_parser = whole32::<1, 1024>)]
    pub(crate) tp: Option<u32>,
    /// Draft passes a step (MTP, EAGLE), which have collectives of their own.
    #[arg(long, value_name = "K", default_value_t = 0, requires = "model", value_parser = whole32::<0, 64>)]
    pub(crate) draft_passes: u32,
    /// Batch sizes in tokens that the engine captured graphs for: messages of decode steps are as large as the next one.
    #[arg(long, value_name = "N,…", value_delimiter = ',', requires = "model")]
    pub(crate) capture_sizes: Vec<u64>,
}

impl ModelArgs {
    /// The model's shape, if its file was given.
    pub(crate) fn read(&self) -> anyhow::Result<Option<Model>> {
        let Some(path) = &self.model else {
            return Ok(None);
        };
        let place = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(place)?;
        let model = Model::from_hf_config(&text).with_context(place)?;
        Ok(Some(Model {
            draft_depth: self.draft_passes,
            ..model
        }))
    }

    /// Captured batch sizes in ascending order.
    pub(crate) fn padded(&self) -> Vec<u64> {
        let mut sizes = self.capture_sizes.clone();
        sizes.sort_unstable();
        sizes
    }
}

/// A time on the export's clock in nanoseconds.
fn time(text: &str) -> Result<i64, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let unit = units
        .into_iter()
        .find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)));
    let (number, ns) = unit.unwrap_or((text, 1e9));
    match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok((number * ns).round() as i64),
        _ => Err("expected a time such as 155.2s, 800ms or 12us".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_may_be_negative() {
        assert_eq!(time("155.2s"), Ok(155_200_000_000));
        assert_eq!(time("1"), Ok(1_000_000_000));
        assert_eq!(time("800ms"), Ok(800_000_000));
        assert_eq!(time("-3 us"), Ok(-3_000));
        assert_eq!(time("7ns"), Ok(7));
        for bad in ["", "s", "1m", "inf", "five"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_window_with_one_end_reaches_to_the_other_end_of_the_capture() {
        let window = |from, to| WindowArgs { from, to }.span();
        assert_eq!(window(None, None), None);
        assert_eq!(window(Some(5), None), Some((5, i64::MAX)));
        assert_eq!(window(None, Some(5)), Some((i64::MIN, 5)));
    }

    #[test]
    fn all_kinds_are_no_filter() {
        let args = |steps: &[KindArg]| StepArgs {
            steps: steps.to_vec(),
            ..StepArgs::default()
        };
        assert!(args(&[]).kinds().is_empty());
        assert!(args(&[KindArg::Decode, KindArg::All]).kinds().is_empty());
        let both = args(&[KindArg::Decode, KindArg::Mixed]).kinds();
        assert_eq!(both, [StepKind::Decode, StepKind::Mixed]);
    }
}
