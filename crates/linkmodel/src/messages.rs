//! What a tensor-parallel model sends, how often, and how bus bandwidth is counted.

use serde::{Deserialize, Serialize};

/// Bytes of the all-reduce of a hidden state: tokens × hidden size × bytes a value.
///
/// `tokens` is what went through the model: the padded size of the captured graph, times 1 + draft tokens with
/// speculation; not the number of live requests.
///
/// ```
/// assert_eq!(linktax_linkmodel::all_reduce_bytes(8, 5120, 2), 80 << 10);
/// ```
pub fn all_reduce_bytes(tokens: u64, hidden: u64, dtype_bytes: u64) -> u64 {
    tokens.saturating_mul(hidden).saturating_mul(dtype_bytes)
}

/// The operations whose traffic nccl-tests defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank ends with the sum.
    AllReduce,
    /// Every rank ends with all parts.
    AllGather,
    /// Every rank ends with its part of the sum.
    ReduceScatter,
    /// Every rank sends a part to every other.
    AllToAll,
    /// One rank to all.
    Broadcast,
    /// All to one rank.
    Reduce,
    /// Pairs of sends and receives.
    SendRecv,
    /// Not known.
    Other,
}

impl Collective {
    /// The name used in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Collective::AllReduce => "all_reduce",
            Collective::AllGather => "all_gather",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllToAll => "all_to_all",
            Collective::Broadcast => "broadcast",
            Collective::Reduce => "reduce",
            Collective::SendRecv => "send_recv",
            Collective::Other => "other",
        }
    }

    /// Bus bandwidth over algorithm bandwidth for `ranks` ranks: 2(n−1)/n for an all-reduce, (n−1)/n for all-gather,
    /// reduce-scatter and all-to-all, 1 for the rest.
    ///
    /// Source: nccl-tests, `doc/PERFORMANCE.md`. For all-gather and reduce-scatter the size is that of the whole
    /// buffer (all ranks' parts).
    pub fn bus_factor(self, ranks: u32) -> f64 {
        let n = f64::from(ranks.max(1));
        match self {
            Collective::AllReduce => 2.0 * (n - 1.0) / n,
            Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => {
                (n - 1.0) / n
            }
            Collective::Broadcast
            | Collective::Reduce
            | Collective::SendRecv
            | Collective::Other => 1.0,
        }
    }

    /// Bus bandwidth in bytes a second of `bytes` in `ns`; `None` for no time.
    pub fn bus_bandwidth(self, bytes: u64, ns: u64, ranks: u32) -> Option<f64> {
        (ns > 0).then(|| bytes as f64 / (ns as f64 / 1e9) * self.bus_factor(ranks))
    }
}

/// The shape of a model, as far as its messages depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Transformer layers.
    pub layers: u32,
    /// Size of the hidden state.
    pub hidden: u64,
    /// Bytes a value.
    pub dtype_bytes: u64,
    /// Vocabulary, for the size of the logits gather.
    pub vocab: Option<u64>,
    /// Draft passes a step (K), 0 without speculation by a draft model.
    pub draft_depth: u32,
}

impl Model {
    /// Bytes of an all-reduce over this many tokens.
    pub fn all_reduce_bytes(&self, tokens: u64) -> u64 {
        all_reduce_bytes(tokens, self.hidden, self.dtype_bytes)
    }

    /// Bytes of the whole buffer of the logits' all-gather over this many rows.
    pub fn logits_bytes(&self, rows: u64) -> Option<u64> {
        Some(all_reduce_bytes(rows, self.vocab?, self.dtype_bytes))
    }

    /// All-reduces of one tensor-parallel step: two a layer and one of the vocabulary-parallel embedding, and for each
    /// draft pass of one layer two and an embedding: 2L + 1 + 3K.
    pub fn all_reduces(&self) -> u32 {
        self.layers
            .saturating_mul(2)
            .saturating_add(1)
            .saturating_add(self.draft_depth.saturating_mul(3))
    }

    /// All-gathers of one tensor-parallel step: the logits of each pass, and the input projection of each draft pass:
    /// 1 + 2K (the second term is a reading of one study's count, not proven).
    pub fn all_gathers(&self) -> u32 {
        self.draft_depth.saturating_mul(2).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_the_nvlink_pcie_study() {
        let model = Model {
            layers: 64,
            hidden: 5120,
            dtype_bytes: 2,
            vocab: Some(151_936),
            draft_depth: 3,
        };
        assert_eq!((model.all_reduces(), model.all_gathers()), (138, 7));
        // 2 and 8 requests of 1 + 3 tokens.
        assert_eq!(model.all_reduce_bytes(8), 80 << 10);
        assert_eq!(model.all_reduce_bytes(32), 320 << 10);
        assert_eq!(model.logits_bytes(1), Some(303_872));
        let plain = Model {
            layers: 12,
            draft_depth: 0,
            ..model
        };
        assert_eq!((plain.all_reduces(), plain.all_gathers()), (25, 1));
    }

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        assert_eq!(Collective::AllReduce.bus_factor(2), 1.0);
        assert_eq!(Collective::AllReduce.bus_factor(8), 1.75);
        assert_eq!(Collective::AllGather.bus_factor(4), 0.75);
        assert_eq!(Collective::AllToAll.bus_factor(8), 0.875);
        assert_eq!(Collective::SendRecv.bus_factor(8), 1.0);
        assert_eq!(Collective::AllReduce.bus_factor(1), 0.0);
        // 128 MiB over 8 ranks in 1 ms.
        let bandwidth = Collective::AllReduce.bus_bandwidth(128 << 20, 1_000_000, 8);
        assert!((bandwidth.unwrap() / 1e9 - 234.88).abs() < 0.01);
        assert_eq!(Collective::AllReduce.bus_bandwidth(1, 0, 8), None);
    }
}
