//! The prefix cache and the counters of `/metrics`, kept together because a request enters both at once.

use std::cell::RefCell;

use crate::config::MockConfig;
use crate::prefix::PrefixCache;
use crate::prometheus::Metrics;
use crate::prompt::PromptTokens;

pub(crate) struct Books {
    pub(crate) metrics: RefCell<Metrics>,
    pub(crate) cache: RefCell<Option<PrefixCache>>,
    factor: f64,
    preemptions: u64,
}

impl Books {
    /// `created` is the start in Unix seconds.
    pub(crate) fn new(config: &MockConfig, created: f64) -> Self {
        let cache = config
            .prefix_cache
            .then(|| PrefixCache::new(config.block_size, config.prefix_cache_tokens));
        Books {
            metrics: RefCell::new(Metrics::new(created)),
            cache: RefCell::new(cache),
            factor: config.prompt_tokens_factor,
            preemptions: config.preemptions_per_request,
        }
    }

    /// A request that arrived at `arrival` begins to run at `at` (ns). Returns how many of its prompt tokens are cached.
    pub(crate) fn admit(&self, prompts: &[PromptTokens], arrival: u64, at: u64) -> u64 {
        let mut metrics = self.metrics.borrow_mut();
        let mut cached = 0;
        for prompt in prompts {
            metrics.prompt_tokens += prompt.count;
            if let Some(cache) = &mut *self.cache.borrow_mut() {
                let hit = cache.admit(&prompt.blocks, prompt.hashed) as f64 * self.factor;
                let hit = (hit.round() as u64).min(prompt.count.saturating_sub(1));
                metrics.prefix_queries += prompt.count;
                metrics.prefix_hits += hit;
                cached += hit;
            }
        }
        metrics.preemptions += self.preemptions;
        metrics.queue.observe(at.saturating_sub(arrival));
        cached
    }
}
