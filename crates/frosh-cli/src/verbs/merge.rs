//! `frosh merge`: the centre's share of DFROSH.

use crate::args::{Common, check_distinct};
use crate::output::{count, print, print_json};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Make one sketch of many. The order does not matter, and merged sketches can be merged again.
#[derive(Args)]
#[command(after_help = "Example:
  frosh merge 1.sketch 2.sketch 3.sketch -o all.sketch")]
pub(crate) struct Merge {
    /// Sketch files
    #[arg(required = true, value_name = "SKETCH")]
    sketches: Vec<PathBuf>,
    /// The sketch file to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Merge sketches of the same worker number too: right only if their rows are different ones
    #[arg(long)]
    same_worker: bool,
}

impl Merge {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        check_distinct(&self.output, self.sketches.iter().map(|path| &**path))?;
        let mut parts: Vec<frosh::Sketch> = Vec::with_capacity(self.sketches.len());
        for path in &self.sketches {
            let part = crate::kinds::sketch(path)?;
            if let Some(first) = parts.first() {
                let name = || format!("{} and {}", self.sketches[0].display(), path.display());
                first.check_mergeable(&part).with_context(name)?;
            }
            let seen = |worker: &u64| parts.iter().any(|other| other.workers().contains(worker));
            if let Some(worker) =
                part.workers().iter().find(|w| seen(w)).filter(|_| !self.same_worker)
            {
                bail!(
                    "{}: worker {worker} is in another sketch already: its rows would count twice. If they \
                     are other rows, pass --same-worker; better give each machine a --worker of its own",
                    path.display()
                );
            }
            parts.push(part);
        }
        let merged = frosh::Sketch::merge(&parts)?;
        merged.save(&self.output)?;
        if common.json {
            return print_json(&json!({
                "sketch": self.output.display().to_string(),
                "parts": parts.len(),
                "rows": merged.rows(),
                "dim": merged.dim(),
                "sketch_rows": merged.sketch_rows(),
                "half_life": merged.half_life(),
                "weight": merged.weight(),
                "clock": merged.clock(),
                "workers": merged.workers(),
            }));
        }
        if common.quiet {
            return Ok(());
        }
        print(&format!(
            "{}: {} sketches, {} rows of {} dimensions\nnext: frosh fit {} -o model.frosh\n",
            self.output.display(),
            parts.len(),
            count(merged.rows()),
            merged.dim(),
            self.output.display()
        ))
    }
}
