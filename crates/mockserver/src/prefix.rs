//! The prefix cache: blocks of tokens, chained by hash, least recently used first out.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Turns a prompt's tokens into the hashes of its whole blocks; each hash covers everything before it.
pub(crate) struct BlockHasher {
    block: usize,
    filled: usize,
    chain: u64,
    blocks: Vec<u64>,
}

impl BlockHasher {
    pub(crate) fn new(block: usize) -> Self {
        BlockHasher {
            block,
            filled: 0,
            chain: 0x9e37_79b9_7f4a_7c15,
            blocks: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, token: u32) {
        self.chain = mix(self.chain ^ u64::from(token));
        self.filled += 1;
        if self.filled == self.block {
            self.filled = 0;
            self.blocks.push(self.chain);
        }
    }

    pub(crate) fn finish(self) -> Vec<u64> {
        self.blocks
    }
}

/// The finaliser of splitmix64.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Keys are hashes already.
#[derive(Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|b| self.0 = mix(self.0 ^ u64::from(*b)));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

pub(crate) struct PrefixCache {
    block: usize,
    capacity: usize,
    used: HashMap<u64, u64, BuildHasherDefault<Identity>>,
    // (block, time of use), oldest first. Entries of blocks used again since are stale and skipped.
    order: VecDeque<(u64, u64)>,
    now: u64,
}

impl PrefixCache {
    /// A cache of `tokens` tokens in blocks of `block`.
    pub(crate) fn new(block: usize, tokens: usize) -> Self {
        PrefixCache {
            block,
            capacity: tokens / block.max(1),
            used: HashMap::default(),
            order: VecDeque::new(),
            now: 0,
        }
    }

    /// How many of a prompt's `tokens` tokens are cached; all its blocks are cached from now on.
    ///
    /// As in vLLM the last token is always computed, so a prompt never hits with its full length.
    pub(crate) fn admit(&mut self, blocks: &[u64], tokens: usize) -> usize {
        let most = tokens.saturating_sub(1) / self.block.max(1);
        let hits = blocks
            .iter()
            .take(most)
            .take_while(|b| self.used.contains_key(b))
            .count();
        // From the end, so that a prompt's tail is forgotten before its head.
        for block in blocks.iter().rev() {
            self.now += 1;
            self.used.insert(*block, self.now);
            self.order.push_back((*block, self.now));
        }
        self.evict();
        hits * self.block
    }

    fn evict(&mut self) {
        while self.used.len() > self.capacity
            && let Some((block, time)) = self.order.pop_front()
        {
            if self.used.get(&block) == Some(&time) {
                self.used.remove(&block);
            }
        }
        if self.order.len() > 2 * self.used.len() + 1024 {
            self.order
                .retain(|(block, time)| self.used.get(block) == Some(time));
        }
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) {
        self.used.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blocks(tokens: &[u32]) -> Vec<u64> {
        let mut hasher = BlockHasher::new(16);
        tokens.iter().for_each(|t| hasher.push(*t));
        hasher.finish()
    }

    fn admit(cache: &mut PrefixCache, tokens: &[u32]) -> usize {
        cache.admit(&blocks(tokens), tokens.len())
    }

    #[test]
    fn shared_prefix_hits_whole_blocks_and_never_the_whole_prompt() {
        let mut cache = PrefixCache::new(16, 1 << 20);
        let a: Vec<u32> = (0..100).collect();
        let b: Vec<u32> = (0..40).chain(500..560).collect();
        assert_eq!(admit(&mut cache, &a), 0);
        assert_eq!(admit(&mut cache, &a), 96);
        assert_eq!(admit(&mut cache, &b), 32);
        assert_eq!(admit(&mut cache, &a[..96]), 80);
        cache.reset();
        assert_eq!(admit(&mut cache, &a), 0);
    }

    #[test]
    fn a_different_first_token_shares_nothing() {
        let mut cache = PrefixCache::new(16, 1 << 20);
        let a: Vec<u32> = (0..64).collect();
        let b: Vec<u32> = std::iter::once(9).chain(1..64).collect();
        admit(&mut cache, &a);
        assert_eq!(admit(&mut cache, &b), 0);
    }

    #[test]
    fn least_recently_used_goes_first_and_tails_before_heads() {
        let mut cache = PrefixCache::new(16, 64);
        let a: Vec<u32> = (0..48).collect();
        let b: Vec<u32> = (100..132).collect();
        admit(&mut cache, &a);
        admit(&mut cache, &b);
        // Four blocks fit: both of b and the head of a.
        assert_eq!(admit(&mut cache, &a[..33]), 32);
        let mut cache = PrefixCache::new(16, 64);
        admit(&mut cache, &a);
        admit(&mut cache, &b);
        admit(&mut cache, &(200..232).collect::<Vec<u32>>());
        assert_eq!(admit(&mut cache, &a), 0);
    }

    proptest! {
        #[test]
        fn hits_are_whole_blocks_below_the_length(prompts in prop::collection::vec(prop::collection::vec(0u32..3, 0..80), 1..40), capacity in 0usize..600) {
            let mut cache = PrefixCache::new(16, capacity);
            for prompt in &prompts {
                let hit = admit(&mut cache, prompt);
                prop_assert!(hit == 0 || hit < prompt.len());
                prop_assert_eq!(hit % 16, 0);
                prop_assert!(cache.used.len() <= capacity / 16);
                prop_assert!(cache.order.len() <= 2 * cache.used.len() + 1024 + 5);
            }
        }
    }
}
